"""JSON-RPC 2.0, to the letter and without any I/O: bytes in, bytes or nothing out."""

from memrecall.server.jsonrpc.answering import Dispatch, RpcError, answer
from memrecall.server.jsonrpc.codes import Code
from memrecall.server.jsonrpc.reading import Limits

__all__ = ["Code", "Dispatch", "Limits", "RpcError", "answer"]
