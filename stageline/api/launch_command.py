"""The serving engine's own words in a line of a shell: without wrappers, environment and redirections."""

import re
import shlex
from collections.abc import Sequence
from typing import NamedTuple

from stageline.errors import BadInput

PLACE = "--like"
# Commands that start another one, whose own words change nothing that is emulated.
_WRAPPERS = frozenset(
    {
        "docker", "podman", "nerdctl", "uv", "uvx", "pixi", "poetry", "nohup", "mpirun", "mpiexec", "srun", "sudo",
        "exec", "env", "time", "numactl", "taskset", "timeout", "tmux", "screen", "trtllm-llmapi-launch", "export",
        "singularity", "apptainer", "kubectl", "bash", "sh", "ray", "helm", "conda",
    }
)  # fmt: skip
_CONTAINERS = frozenset({"docker", "podman", "nerdctl"})
_VLLM_IMAGE = re.compile(r"(?:[\w.:-]+/)*vllm-openai(?:[:@][\w.:@-]+)?")  # its entry point is the server
_END = re.compile(r"&|&&|\||\|\||;|[0-9&]?>{1,2}.*|<.*")
_SETTING = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)


class Command(NamedTuple):
    """A launch command."""

    engine: int  # index of the family of commands
    words: list[str]  # behind the command
    environment: dict[str, str]  # set on the line


def find_command(text: str, families: Sequence[Sequence[tuple[str, ...]]]) -> Command:
    """The first command of a family in the line. Raises BadInput if there is none, or something else is started."""
    try:
        words = [word for word in shlex.split(text) if word.strip()]
    except ValueError as error:
        raise BadInput(PLACE, text, f"not a command line: {error}", "quote it as your shell would") from None
    for start in range(len(words)):
        for index, commands in enumerate(families):
            for command in commands:
                if tuple(words[start : start + len(command)]) == command:
                    behind = _until_end(words[start + len(command) :])
                    return Command(index, behind, _environment(text, words[:start], families))
        if _is_image(words, start):
            return Command(0, _until_end(words[start + 1 :]), _environment(text, words[:start], families))
    raise _unknown(text, families)


def _is_image(words: Sequence[str], at: int) -> bool:
    return bool(_CONTAINERS & set(words[:at])) and bool(_VLLM_IMAGE.fullmatch(words[at]))


def _until_end(words: list[str]) -> list[str]:
    """The words before a redirection, or the next command."""
    end = next((i for i, word in enumerate(words) if _END.fullmatch(word)), len(words))
    return words[:end]


def _environment(text: str, words: Sequence[str], families: Sequence[Sequence[tuple[str, ...]]]) -> dict[str, str]:
    """What is set in front of the command, by the shell or by a wrapper. Raises BadInput for an unknown wrapper."""
    settings = [word.removeprefix("--env=").removeprefix("-e=") for word in words]
    found = dict(word.split("=", 1) for word in settings if _SETTING.fullmatch(word))
    first = next((word for word in words if not _SETTING.fullmatch(word)), None)
    if first is not None and first.rsplit("/", 1)[-1] not in _WRAPPERS:
        raise _unknown(text, families)
    return found


def _unknown(text: str, families: Sequence[Sequence[tuple[str, ...]]]) -> BadInput:
    known = ", ".join(" ".join(commands[0]) for commands in families)
    return BadInput(PLACE, text, "not a launch line of a known serving engine", f"it begins with one of: {known}")
