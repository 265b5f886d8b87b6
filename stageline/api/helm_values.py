"""Values for the Helm chart of vLLM's production stack: written for the answer of a search, and read as a launch line.

The chart's fields: docs.vllm.ai/projects/production-stack (`servingEngineSpec.modelSpec`).
"""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from stageline.api.files import read_file
from stageline.api.launch_command import PLACE
from stageline.cluster.yaml_text import Yaml, emit
from stageline.errors import BadInput
from stageline.plan.shapes import Shape


def looks_like_values(text: str) -> bool:
    """Whether a text is the path of a values file and no launch line."""
    return text.endswith((".json", ".yaml", ".yml")) and not text.strip().count(" ")


def line_of_file(path: Path) -> str:
    """The launch line of a values file. Raises BadInput."""
    try:
        return line_of_values(yaml.safe_load(read_file(path)))
    except (yaml.YAMLError, RecursionError, UnicodeDecodeError) as error:
        reason = f"no YAML: {' '.join(str(error).split())}"
        raise BadInput(f"{PLACE} {path}", None, reason, "give a values file, or the launch line itself") from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"no values of the production stack with one model: {error}"
        way_out = "it has servingEngineSpec.modelSpec with one entry, whose vllmConfig has extraArgs"
        raise BadInput(f"{PLACE} {path}", None, reason, way_out) from None


def helm_values(words: list[str], name: str, shape: Shape) -> str:
    """Values of the production stack: a pod for every replica, each launched with the flags of one."""
    start = words.index("vllm")
    model, flags = words[start + 2], words[start + 3 :]
    if "--data-parallel-size" in flags:
        at = flags.index("--data-parallel-size")
        flags = flags[:at] + flags[at + 2 :]
    entry: dict[str, Yaml] = {
        "name": name,
        "repository": "vllm/vllm-openai",
        "tag": "latest",
        "modelURL": model,
        "replicaCount": shape.replicas,
        "requestGPU": shape.devices // shape.replicas,
        "vllmConfig": {"extraArgs": [*flags]},
    }
    variables = [word.partition("=") for word in words[:start]]
    if variables:
        entry["env"] = [{"name": variable, "value": value} for variable, _, value in variables]
    return emit({"servingEngineSpec": {"modelSpec": [entry]}})


def line_of_values(document: Mapping[str, Any]) -> str:
    """The launch line that a values file stands for: all pods together. Raises KeyError or TypeError for another form.

    `vllmConfig` may name settings in fields of its own; those known here become flags, any other raises KeyError.
    """
    (entry,) = document["servingEngineSpec"]["modelSpec"]
    config = dict(entry.get("vllmConfig", {}))
    words = [f"{variable['name']}={variable.get('value', '')}" for variable in entry.get("env", ())]
    words += ["vllm", "serve", entry["modelURL"], *map(str, config.pop("extraArgs", ()))]
    for name, value in config.items():
        if name in _SWITCHES:
            words.append(_SWITCHES[name] if value else _SWITCHES[name].replace("--", "--no-", 1))
        else:
            words += [_FIELDS[name], str(value)]
    replicas = int(entry.get("replicaCount", 1))
    return shlex.join(words + (["--data-parallel-size", str(replicas)] if replicas > 1 else []))


_FIELDS = {
    "tensorParallelSize": "--tensor-parallel-size", "maxModelLen": "--max-model-len", "dtype": "--dtype",
    "maxNumSeqs": "--max-num-seqs", "gpuMemoryUtilization": "--gpu-memory-utilization",
}  # fmt: skip
_SWITCHES = {"enablePrefixCaching": "--enable-prefix-caching", "enableChunkedPrefill": "--enable-chunked-prefill"}
