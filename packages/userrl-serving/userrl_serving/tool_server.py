"""A domain's tools as REST routes and as MCP tools. Each session has its own database (TARL 2.1).

``POST /sessions`` starts an episode on a private SQLite copy of the domain. The same Python functions are reached in two
ways: ``POST /sessions/{id}/tools/NAME`` with the arguments as a JSON object, and the MCP endpoint ``/sessions/{id}/mcp``
(streamable HTTP). ``GET /sessions/{id}/verdict`` compares the writes with the gold writes of the session's task. A
refusal is ``{"error": sentence}`` over REST and an error result over MCP. A refused call changes nothing.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from fastapi import Body, FastAPI, HTTPException, Request
from starlette.types import ASGIApp

from userrl_core.errors import ConfigError
from userrl_core.gyms.tau.database import Database
from userrl_core.gyms.tau.stores import open_database
from userrl_core.gyms.tau.tools import Domain, ToolError, read_call
from userrl_core.gyms.tau.verifier import Write, WritesVerdict, replay, verify
from userrl_core.records import Task
from userrl_serving.json_answers import expiring, json_app
from userrl_serving.json_bodies import JsonBodies

try:
    import mcp_types as protocol
    from mcp.server.lowlevel import Server
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from mcp.server.transport_security import TransportSecuritySettings
except ModuleNotFoundError as error:
    raise ConfigError(
        "gym.not_installed",
        f"serve-tools needs the module {error.name}, which is not installed. Install the extra mcp.",
    ) from error


@dataclass(slots=True)
class _ToolSession:
    database: Database
    task: Task | None
    writes: list[Write] = field(default_factory=list)
    used: float = field(default_factory=time.monotonic)


@dataclass(slots=True)
class ToolServer:
    """Sessions of one domain.

    folder: the domain's data, None for a domain of ours. tasks: those that a session may name. total: maximum number of
    sessions. idle: seconds after which an unused session is closed.
    """

    domain: Domain
    folder: str | None
    tasks: Sequence[Task] = ()
    total: int = 1024
    idle: float = 3600.0
    _sessions: dict[str, _ToolSession] = field(default_factory=dict)

    def create(self, task_id: str | None = None) -> str:
        """Start an episode and return the session's name. Raises LookupError for an unknown task, RuntimeError if the
        server is full.
        """
        task = None if task_id is None else next((task for task in self.tasks if task.id == task_id), None)
        if task_id is not None and task is None:
            raise LookupError(f"There is no task {task_id} of {self.domain.name} here.")
        if len(self._sessions) >= self.total:
            raise RuntimeError(f"There are {self.total} sessions; close some, or come back later.")
        base = self.domain.base if task is None else task.payload.get("tables", self.domain.base)
        name = secrets.token_urlsafe(12)
        self._sessions[name] = _ToolSession(open_database(self.domain, self.folder, base, "sqlite"), task)
        return name

    def call(self, session: str, tool: str, arguments: dict[str, Any]) -> str:
        """Execute a tool. Raises LookupError for an unknown session, ToolError if the tool refuses."""
        tool_session = self.find(session)
        _, arguments = read_call(json.dumps({"name": tool, "arguments": arguments}))
        result = self.domain.call(tool_session.database, tool, arguments)
        if tool in self.domain.writes:
            tool_session.writes.append((tool, arguments))
        return result

    def verdict(self, session: str) -> WritesVerdict:
        """Compare the session's writes so far with the gold actions of its task. Raises LookupError without a task."""
        tool_session = self.find(session)
        if tool_session.task is None:
            raise LookupError("This session was begun without a task; there is nothing to compare it with.")
        payload = tool_session.task.payload
        gold = replay(self.domain, payload["actions"], payload.get("tables"))
        return verify(gold, tool_session.writes, tool_session.database, (), ())

    def close(self, session: str) -> bool:
        """End an episode. Return whether it existed."""
        tool_session = self._sessions.pop(session, None)
        if tool_session is not None:
            tool_session.database.close()
        return tool_session is not None

    async def expire(self) -> None:
        """Close sessions unused for `idle` seconds."""
        forgotten = time.monotonic() - self.idle
        for name in [name for name, tool_session in self._sessions.items() if tool_session.used < forgotten]:
            self.close(name)

    def find(self, session: str) -> _ToolSession:
        """Return a session and mark it as used. Raises LookupError if it does not exist."""
        if session not in self._sessions:
            raise LookupError("There is no such session; begin one with POST /sessions.")
        tool_session = self._sessions[session]
        tool_session.used = time.monotonic()
        return tool_session

    def __len__(self) -> int:
        return len(self._sessions)


def app_of(server: ToolServer) -> ASGIApp:
    """Return the routes: REST by FastAPI, and an MCP endpoint for each session."""
    # The front door has checked the request's origin. The address names the session, so MCP needs no session itself.
    security = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    manager = StreamableHTTPSessionManager(
        _mcp_server(server), json_response=True, stateless=True, security_settings=security
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with expiring(server), manager.run():
            yield

    app = _rest(server, lifespan)

    async def either(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and _mcp_session(scope["path"]) is not None:
            await manager.handle_request(scope, receive, send)
        else:
            await app(scope, receive, send)

    return JsonBodies(either)


def _rest(server: ToolServer, lifespan: Any) -> FastAPI:
    app = json_app(f"userrl tools of {server.domain.name}", lifespan)

    @app.get("/")
    async def about() -> dict[str, Any]:
        return {"domain": server.domain.name, "tools": [schema["function"] for schema in server.domain.schemas]}

    @app.get("/health")
    async def health() -> dict[str, Any]:
        return {"status": "ok", "domain": server.domain.name, "sessions": len(server)}

    @app.post("/sessions")
    async def create(task: str | None = Body(default=None, embed=True)) -> dict[str, str]:
        try:
            return {"session": server.create(task)}
        except LookupError as error:
            raise HTTPException(404, str(error.args[0])) from error
        except RuntimeError as error:
            raise HTTPException(503, str(error)) from error

    @app.get("/sessions/{session}/verdict")
    async def verdict(session: str) -> dict[str, bool]:
        result = _or_404(lambda: server.verdict(session))
        return {"writes": result.writes, "database": result.database}

    @app.delete("/sessions/{session}")
    async def close(session: str) -> dict[str, bool]:
        return {"closed": server.close(session)}

    for schema in server.domain.schemas:
        _route(app, server, schema["function"])
    return app


def _route(app: FastAPI, server: ToolServer, function: dict[str, Any]) -> None:
    """Add one tool's route. The tool's own schema checks its arguments."""
    name = function["name"]
    described = {"requestBody": {"content": {"application/json": {"schema": function["parameters"]}}}}

    @app.post(
        f"/sessions/{{session}}/tools/{name}", name=name, description=function["description"], openapi_extra=described
    )
    async def call(session: str, request: Request) -> dict[str, str]:
        try:
            arguments = await request.json()
        except ValueError:
            arguments = None
        if not isinstance(arguments, dict):
            return {"error": "the arguments of a tool call are a JSON object"}
        try:
            return {"result": _or_404(lambda: server.call(session, name, arguments))}
        except ToolError as error:
            return {"error": str(error)}


def _mcp_server(server: ToolServer) -> Server[Any]:
    tools = [
        protocol.Tool(name=f["name"], description=f["description"], input_schema=f["parameters"])
        for f in (schema["function"] for schema in server.domain.schemas)
    ]

    async def list_tools(context: Any, params: Any) -> protocol.ListToolsResult:
        return protocol.ListToolsResult(tools=tools)

    async def call_tool(context: Any, params: protocol.CallToolRequestParams) -> protocol.CallToolResult:
        session = _mcp_session(context.request.url.path) or ""
        try:
            text, failed = server.call(session, params.name, params.arguments or {}), False
        except (ToolError, LookupError) as error:
            text, failed = str(error.args[0]), True
        return protocol.CallToolResult(content=[protocol.TextContent(text=text)], is_error=failed)

    return Server(f"userrl-{server.domain.name}", on_list_tools=list_tools, on_call_tool=call_tool)


def _mcp_session(path: str) -> str | None:
    parts = path.strip("/").split("/")
    return parts[1] if len(parts) == 3 and (parts[0], parts[2]) == ("sessions", "mcp") else None


def _or_404(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except LookupError as error:
        raise HTTPException(404, str(error.args[0])) from error
