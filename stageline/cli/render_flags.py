"""What all files that `stageline render` writes have in common."""

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter

from stageline.cluster.containers import IMAGE


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class RenderFlags:
    """The same for a compose file, a stack and manifests."""

    name: Annotated[str, Parameter(help="Name of the compose project or stack, or prefix of every object.")] = (
        "stageline"
    )
    image: Annotated[str, Parameter(help="Image of the containers, which the hosts can pull.")] = IMAGE
    dilation: Annotated[str, Parameter(help="Wall time per emulated time of live sessions: a factor, or auto.")] = (
        "auto"
    )
    payload: Annotated[
        Literal["size", "capped", "full"],
        Parameter(help="How many bytes of activations, and of KV that is handed over, are really sent."),
    ] = "capped"

    def given(self) -> list[str]:
        """Those that differ from their defaults, as they are written on a command line."""
        default = RenderFlags()
        pairs = ((field, getattr(self, field), getattr(default, field)) for field in self.__dataclass_fields__)
        return [f"--{field}={value}" for field, value, usual in pairs if value != usual]
