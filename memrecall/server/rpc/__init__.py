"""JSON-RPC 2.0: messages, the tools as methods, and the server on stdin and stdout."""
