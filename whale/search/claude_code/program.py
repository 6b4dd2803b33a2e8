"""Claude Code itself, through the Claude Agent SDK: no tool but ours, no setting, key or folder of the user's."""

import asyncio
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from whale.errors import UsageError
from whale.search.agentic.schemas import SCHEMAS
from whale.search.claude_code.visit import SERVER

if TYPE_CHECKING:
    from claude_agent_sdk import ClaudeAgentOptions

_KEPT = ("PATH", "LANG", "LC_ALL", "SYSTEMROOT", "TMPDIR")
"""Of the environment; everything else may be a secret, and is set empty."""
_PATIENCE_MS = 24 * 3600 * 1000
"""The program waits as long as the gateway does; how long that is, is the session's to say."""

ToolCall = Callable[[str, dict[str, Any]], tuple[str, bool]]


def require_sdk() -> None:
    """Raise UsageError unless the SDK is installed."""
    try:
        import claude_agent_sdk  # noqa: F401
    except ImportError:
        raise UsageError(
            'the proposer "claude-code" needs the Claude Agent SDK: pip install "whale-evolve[claude-code]"'
        ) from None


class Program:
    """One run of the program, in a thread of its own."""

    def __init__(
        self, *, prompt: str, system: str, model: str, home: str, address: str, key: str, cli: str, call: ToolCall
    ) -> None:
        self.prompt = prompt
        self.options = _options(system, model, home, address, key, cli, call)
        self.fault = ""
        """What went wrong with it, if it ended otherwise than it should."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def over(self) -> bool:
        """Whether it has ended."""
        return not self._thread.is_alive()

    def stop(self) -> None:
        """End it and its process."""
        if self._loop is not None and self._task is not None and not self.over():
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(timeout=20)

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:
            self.fault = " ".join(f"{type(error).__name__}: {error}".split())[:500]

    async def _main(self) -> None:
        from claude_agent_sdk import ClaudeSDKClient, ResultMessage

        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        async with ClaudeSDKClient(self.options) as client:
            await client.query(self.prompt)
            # What the model says went through the gateway, and is recorded.
            async for message in client.receive_response():
                if isinstance(message, ResultMessage) and message.is_error:
                    self.fault = " ".join((message.result or message.subtype).split())[:500]


def _options(
    system: str, model: str, home: str, address: str, key: str, cli: str, call: ToolCall
) -> "ClaudeAgentOptions":
    from claude_agent_sdk import ClaudeAgentOptions, SdkMcpTool, create_sdk_mcp_server

    def handler(name: str) -> Callable[[dict[str, Any]], Any]:
        async def handle(arguments: dict[str, Any]) -> dict[str, Any]:
            loop = asyncio.get_running_loop()
            text, failed = await loop.run_in_executor(None, call, name, arguments)
            return {"content": [{"type": "text", "text": text}], "is_error": failed}

        return handle

    tools = [SdkMcpTool(s["name"], s["description"], s["input_schema"], handler(s["name"])) for s in SCHEMAS]
    env = dict.fromkeys(os.environ, "") | {name: os.environ[name] for name in _KEPT if name in os.environ}
    env |= {
        "HOME": home,
        "CLAUDE_CONFIG_DIR": home,
        "ANTHROPIC_BASE_URL": address,
        "ANTHROPIC_API_KEY": key,
        "API_TIMEOUT_MS": str(_PATIENCE_MS),
        "MCP_TOOL_TIMEOUT": str(_PATIENCE_MS),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }
    return ClaudeAgentOptions(
        tools=[],
        allowed_tools=[f"mcp__{SERVER}"],
        permission_mode="dontAsk",
        mcp_servers={SERVER: create_sdk_mcp_server(SERVER, tools=tools)},
        strict_mcp_config=True,
        setting_sources=[],
        skills=[],
        system_prompt=system,
        model=model,
        cwd=home,
        env=env,
        cli_path=cli or None,
        verbatim_prompts=True,
        stderr=lambda line: None,
    )
