"""What a chat asks its answer to look like: a tool's call, or JSON."""

from collections.abc import Sequence

import msgspec

from router.api.openai.schema import CommonFields, Message, Tool, ToolChoice
from router.api.shapes import Shape, ShapeOption, text_of
from stageline.errors import BadInput

MAX_TOOLS = 128
_ANY_OBJECT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def tool_shape(tools: Sequence[Tool], choice: str | ToolChoice | None) -> Shape | None:
    """The call that has to be made; None: `auto` and `none` give text. Raises BadInput."""
    if len(tools) > MAX_TOOLS:
        raise BadInput("tools", len(tools), f"more than {MAX_TOOLS} tools", "send fewer")
    if odd := next((tool.type for tool in tools if tool.type != "function" or tool.function is None), None):
        raise BadInput("tools", odd, "only functions are emulated", 'write {"type": "function", "function": {...}}')
    if choice in (None, "auto", "none"):
        return None
    if not tools:
        raise BadInput("tool_choice", None, "there are no tools to choose from", "send tools, too")
    options = tuple(
        ShapeOption(tool.function.parameters or {"type": "object"}, f"tools[{number}].parameters", tool.function.name)
        for number, tool in enumerate(tools)
        if tool.function is not None
    )
    if choice == "required":
        return Shape(options)
    if isinstance(choice, str) or choice.type != "function" or choice.function is None:
        way_out = 'write none, auto, required or {"type": "function", "function": {"name": ...}}'
        raise BadInput("tool_choice", choice if isinstance(choice, str) else choice.type, "not emulated", way_out)
    named = tuple(option for option in options if option.tool == choice.function.name)
    if not named:
        raise BadInput("tool_choice", choice.function.name, "not the name of one of the tools")
    return Shape(named[:1])


def format_shape(body: CommonFields) -> Shape | None:
    """The JSON that `response_format` asks for; None: text. Raises BadInput."""
    wanted = body.response_format
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return Shape((ShapeOption(_ANY_OBJECT, "response_format"),))
    if wanted.type != "json_schema" or wanted.json_schema is None:
        way_out = "send text, json_object, or json_schema with a json_schema"
        raise BadInput("response_format.type", wanted.type, "not emulated", way_out)
    schema = {} if wanted.json_schema.schema is None else wanted.json_schema.schema
    return Shape((ShapeOption(schema, "response_format.json_schema.schema"),))


def tools_text(tools: Sequence[Tool]) -> str:
    """Tools as the prompt has them: their JSON, before the first message."""
    return f"tools: {text_of(msgspec.to_builtins(tools))}\n" if tools else ""


def calls_text(message: Message) -> str:
    """The calls of an assistant's message, each as the router would have written it: the name and its arguments."""
    calls = [call.function for call in message.tool_calls or () if call.function is not None]
    return "".join(f"{call.name} {call.arguments}" for call in calls)
