"""JSON-RPC 2.0 without I/O: a message in, a reply or None out."""

from memrecall.server.rpc.codec import Code, Dispatch, RpcError, RpcLimits, answer

__all__ = ["Code", "Dispatch", "RpcError", "RpcLimits", "answer"]
