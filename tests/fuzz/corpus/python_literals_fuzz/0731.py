"""Doc string with TOOLS_TEMPLATE = "no"."""
from typing import Any, Dict
import json

bos_token: str = "<｜begin▁of▁sentence｜>"
eos_token: str = "<｜end▁of▁sentence｜>"
thinking_start_token: str = "<think>"
thinking_end_token: str = "</think>"
dsml_token = "｜DSML｜"
USER_SP_TOKEN = "<｜User｜>"
ASSISTANT_SP_TOKEN = "<｜Assistant｜>"
LATEST_REMINDER_SP_TOKEN = "<｜latest_reminder｜>"

DS_TASK_SP_TOKENS = {
    "action": "<｜action｜>",
    "title": "<｜title｜>",
}
VALID_TASKS = set(DS_TASK_SP_TOKENS.keys())

response_format_template: str = (
    "## Format\n\nFollow:\n{schema}"
)
tool_calls_block_name: str = "tool_calls"

TOOLS_TEMPLATE = """## Tools

Write a "<{dsml_token}tool_calls>" block, {thinking_start_token}first{thinking_end_token}.
{tool_schemas}

That is {all}.
"""

REASONING_EFFORT_PROMPTS: Dict[str, str] = {
    "low": "",
    "high": (
        "Think hard.\n\n"
    ),
    "max": "Think harder.\n\n",
}
DEFAULT_REASONING_EFFORT = "low"
