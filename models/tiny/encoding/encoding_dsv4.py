# SPDX-License-Identifier: Apache-2.0
"""Chat encoder of the bundled model `tiny`: messages in, prompt text out.

The grammar is the one of DeepSeek-V4's preview profile; the words are tiny's own. The three prompt literals below are
data: a server may read them out of this file (plain string literals, implicitly concatenated, never executed) and
must substitute only the named placeholder in each.

    TOOLS_TEMPLATE            placeholder {tool_schemas}: one JSON function object a line
    RESPONSE_FORMAT_TEMPLATE  placeholder {schema}: the response schema as JSON
    REASONING_EFFORT_MAX      no placeholder

    encode_messages([{"role": "user", "content": "Hi"}], thinking_mode="chat")
"""
import json
from typing import Any

BOS_TOKEN = "<｜begin▁of▁sentence｜>"
EOS_TOKEN = "<｜end▁of▁sentence｜>"
USER_TOKEN = "<｜User｜>"
ASSISTANT_TOKEN = "<｜Assistant｜>"
THINK_START_TOKEN = "<think>"
THINK_END_TOKEN = "</think>"
DSML_TOKEN = "｜DSML｜"
LATEST_REMINDER_TOKEN = "<｜latest_reminder｜>"

TOOLS_TEMPLATE = (
    "## Tools\n"
    "Call a tool with a <｜DSML｜tool_calls> block when it helps.\n"
    "{tool_schemas}\n"
)

RESPONSE_FORMAT_TEMPLATE = (
    "## Response format\n"
    "Answer only with JSON that fits this schema:\n"
    "{schema}"
)

REASONING_EFFORT_MAX = (
    "Think as long as you need: check every step before you answer.\n\n"
)

Message = dict[str, Any]


def to_json(value: Any) -> str:
    """`", "` and `": "` separators, key order kept, non-ASCII kept."""
    return json.dumps(value, ensure_ascii=False)


def render_tools(tools: list[dict]) -> str:
    """The tools block; accepts OpenAI's {"type": "function", "function": {...}} or bare function objects."""
    schemas = "\n".join(to_json(tool.get("function", tool)) for tool in tools)
    return TOOLS_TEMPLATE.replace("{tool_schemas}", schemas)


def render_response_format(response_format: Any) -> str:
    return RESPONSE_FORMAT_TEMPLATE.replace("{schema}", to_json(response_format))


def render_parameter(name: str, value: Any) -> str:
    is_string = isinstance(value, str)
    text = value if is_string else to_json(value)
    flag = "true" if is_string else "false"
    return f'<{DSML_TOKEN}parameter name="{name}" string="{flag}">{text}</{DSML_TOKEN}parameter>'


def render_tool_call(call: dict) -> str:
    """One call; arguments that are not a JSON object become a single string parameter called `arguments`."""
    function = call.get("function", call)
    arguments = function.get("arguments") or "{}"
    if isinstance(arguments, str):
        try:
            parsed = json.loads(arguments)
        except ValueError:
            parsed = None
        arguments = parsed if isinstance(parsed, dict) else {"arguments": arguments}
    parameters = "\n".join(render_parameter(k, v) for k, v in arguments.items())
    return f'<{DSML_TOKEN}invoke name="{function["name"]}">\n{parameters}\n</{DSML_TOKEN}invoke>'


def render_tool_calls(calls: list[dict]) -> str:
    body = "\n".join(render_tool_call(call) for call in calls)
    return f"\n\n<{DSML_TOKEN}tool_calls>\n{body}\n</{DSML_TOKEN}tool_calls>"


def text_of(content: Any) -> str:
    """Message content as text; in a list, text parts are joined by blank lines and other parts are named."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "\n\n".join(
        part.get("text", "") if part.get("type") == "text" else f"[Unsupported {part.get('type')}]" for part in content
    )


def merge_messages(messages: list[Message]) -> list[Message]:
    """Tool results and neighbouring user messages become blocks of one user message."""
    merged: list[Message] = []
    for message in messages:
        if message.get("task"):
            raise ValueError("tiny knows no task tokens")
        if message["role"] == "tool":
            block = {"result": text_of(message.get("content")), "id": message.get("tool_call_id")}
        elif message["role"] == "user":
            block = {"text": text_of(message.get("content"))}
        else:
            merged.append(dict(message))
            continue
        if merged and merged[-1]["role"] == "user":
            merged[-1]["blocks"].append(block)
        else:
            merged.append({"role": "user", "blocks": [block]})
    return merged


def order_tool_results(messages: list[Message]) -> None:
    """Results follow the order of the calls they answer; text blocks keep their slots; unknown ids sort first."""
    order: dict[str, int] = {}
    for message in messages:
        if message["role"] == "assistant" and message.get("tool_calls"):
            order = {call["id"]: i for i, call in enumerate(message["tool_calls"]) if call.get("id")}
        elif message["role"] == "user":
            slots = [i for i, block in enumerate(message["blocks"]) if "result" in block]
            ranked = sorted((message["blocks"][i] for i in slots), key=lambda block: order.get(block["id"], 0))
            for slot, block in zip(slots, ranked):
                message["blocks"][slot] = block


def render_user(message: Message) -> str:
    blocks = (
        f"<tool_result>{block['result']}</tool_result>" if "result" in block else block["text"]
        for block in message["blocks"]
    )
    return USER_TOKEN + "\n\n".join(blocks)


def with_blocks(text: str, message: Message) -> str:
    """Text of a system or developer message followed by its tools and response format."""
    if message.get("tools"):
        text += "\n\n" + render_tools(message["tools"])
    if message.get("response_format"):
        text += "\n\n" + render_response_format(message["response_format"])
    return text


def encode_messages(
    messages: list[Message],
    thinking_mode: str = "chat",
    drop_thinking: bool = True,
    reasoning_effort: str | None = None,
    add_bos: bool = True,
) -> str:
    """The prompt for the next assistant turn (or, when the last message is the assistant's, the whole dialogue)."""
    if thinking_mode not in ("chat", "thinking"):
        raise ValueError(f"thinking_mode {thinking_mode!r}: expected 'chat' or 'thinking'")
    thinking = thinking_mode == "thinking"
    messages = merge_messages(messages)
    order_tool_results(messages)
    dropping = thinking and drop_thinking and not any(message.get("tools") for message in messages)
    last_user = max((i for i, m in enumerate(messages) if m["role"] in ("user", "developer")), default=-1)
    if dropping:
        known = ("system", "user", "assistant", "latest_reminder")
        kept = [m for i, m in enumerate(messages) if i >= last_user or m["role"] in known]
        last_user -= len(messages) - len(kept)
        messages = kept

    out = [BOS_TOKEN] if add_bos else []
    for i, message in enumerate(messages):
        role = message["role"]
        if i == 0 and thinking and reasoning_effort == "max":
            out.append(REASONING_EFFORT_MAX)
        if role == "system":
            out.append(with_blocks(text_of(message.get("content")), message))
        elif role == "user":
            out.append(render_user(message))
        elif role == "developer":
            if not message.get("content"):
                raise ValueError("a developer message needs content")
            out.append(with_blocks(USER_TOKEN + text_of(message["content"]), message))
        elif role == "latest_reminder":
            out.append(LATEST_REMINDER_TOKEN + text_of(message.get("content")))
        elif role == "assistant":
            if thinking and (not dropping or i > last_user):
                out.append((message.get("reasoning_content") or "") + THINK_END_TOKEN)
            out.append(text_of(message.get("content")))
            if message.get("tool_calls"):
                out.append(render_tool_calls(message["tool_calls"]))
            if not message.get("wo_eos"):
                out.append(EOS_TOKEN)
        else:
            raise ValueError(f"unknown role {role!r}")
        followed = messages[i + 1]["role"] if i + 1 < len(messages) else None
        if role in ("user", "developer") and followed in (None, "assistant", "latest_reminder"):
            opens = thinking and (not dropping or i >= last_user)
            out.append(ASSISTANT_TOKEN + (THINK_START_TOKEN if opens else THINK_END_TOKEN))
    return "".join(out)
