"""A model in numbers, layer by layer: what `stageline models show` prints."""

import msgspec

from stageline.model.spec import Layer, ModelSpec, kind_name


class LayerSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One layer; params and bytes of its weights, KV and state."""

    index: int  # 0-based
    kind: str
    params: int
    active_params: int
    weight_bytes: int
    kv_bytes_per_token: int
    state_bytes: int
    window_bytes: int  # of a request's windows, once they are full
    flops_per_token: int  # 2 x active parameters + update and read of the recurrent state of linear attention
    pair_flops: int  # attention in decode, per query-key pair
    boundary_bytes_per_token: int  # what crosses the boundary after this layer


class ModelSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The text model; `left_out` names the other parts of the checkpoint."""

    name: str
    total_params: int
    active_params: int
    weight_bytes: int
    embedding_bytes: int
    head_bytes: int
    kv_type: str
    kv_bytes_per_token: int
    kv_bytes_per_long_token: int  # once all windows are full
    window_bytes_per_request: int
    state_type: str
    state_bytes_per_request: int
    context_tokens: int
    left_out: tuple[str, ...]
    layers: tuple[LayerSummary, ...]


def summarise(spec: ModelSpec) -> ModelSummary:
    """The totals of a model, and its layers one by one."""
    layers = tuple(_layer(spec, i, layer) for i, layer in enumerate(spec.layers))
    return ModelSummary(
        name=spec.name,
        total_params=spec.total_params(),
        active_params=spec.active_params(),
        weight_bytes=spec.weight_bytes(),
        embedding_bytes=spec.embedding_bytes(),
        head_bytes=0 if spec.tied else spec.head_bytes(),
        kv_type=spec.kv_type,
        kv_bytes_per_token=sum(layer.kv_bytes_per_token for layer in layers),
        kv_bytes_per_long_token=sum(x.kv_bytes_per_token for x in layers if not windowed(spec, x.index)),
        window_bytes_per_request=sum(layer.window_bytes for layer in layers),
        state_type=spec.state_type,
        state_bytes_per_request=sum(layer.state_bytes for layer in layers),
        context_tokens=spec.context,
        left_out=spec.left_out,
        layers=layers,
    )


def windowed(spec: ModelSpec, index: int) -> bool:
    """Whether all that a layer keeps of a request is bounded by windows."""
    return all(cache.kept_tokens for cache in spec.layers[index].attention.caches())


def _layer(spec: ModelSpec, index: int, layer: Layer) -> LayerSummary:
    tensors = layer.tensors(spec.hidden)
    active = sum(t.active for t in tensors)
    return LayerSummary(
        index=index,
        kind=kind_name(layer),
        params=sum(t.params for t in tensors),
        active_params=active,
        weight_bytes=layer.weight_bytes(spec.hidden),
        kv_bytes_per_token=spec.kv_bytes_per_token(index),
        state_bytes=spec.state_bytes(index),
        window_bytes=spec.window_bytes(index),
        flops_per_token=2 * active + layer.attention.state_flops(),
        pair_flops=layer.attention.pair_flops()[0],
        boundary_bytes_per_token=spec.boundary_bytes(index + 1),
    )
