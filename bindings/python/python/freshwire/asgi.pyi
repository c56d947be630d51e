from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol

from typing_extensions import Unpack

from . import Sender, WebSocket, _SinkOptions, choice

_Scope = MutableMapping[str, Any]
_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]
_Application = Callable[[_Scope, _Receive, _Send], Awaitable[None]]

class _HasScope(Protocol):
    scope: _Scope

class Middleware:
    def __init__(self, app: _Application) -> None: ...
    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None: ...

async def accept(
    websocket: _HasScope | _Scope,
    sender: Sender,
    policy: choice.Policy,
    *,
    subprotocol: str | None = None,
    binary: bool = False,
    max_message: int = 65536,
    keepalive: float | None = 15.0,
    keepalive_timeout: float = 30.0,
    **options: Unpack[_SinkOptions],
) -> WebSocket: ...
