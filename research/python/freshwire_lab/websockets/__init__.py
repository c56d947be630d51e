"""One application on several WebSocket servers: a value that changes 50 times a second, and clients, some of them slow.

`python3 -m freshwire_lab.websockets` runs each server with the same clients and prints a table. It needs the command
`freshwire`, and an interpreter with the packages `freshwire`, `websockets`, `fastapi` and `uvicorn`, such as that of
`xtask/python.sh`.
"""
