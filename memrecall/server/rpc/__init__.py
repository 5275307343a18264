"""JSON-RPC 2.0, to the letter and without any I/O: bytes in, bytes or nothing out."""

from memrecall.server.rpc.codec import Code, Dispatch, RpcError, RpcLimits, answer

__all__ = ["Code", "Dispatch", "RpcError", "RpcLimits", "answer"]
