"""Embedders of larger model libraries, which are optional dependencies."""

from memrecall.embedding.batching import BATCH_SIZE, Encode, ThreadedEmbedder

_LOAD_HINT = "Check the model's name; the first use of a model downloads it"


class SentenceTransformersEmbedder(ThreadedEmbedder):
    """Embeds with any model of the sentence-transformers library, by its name or path.

    The stored name is "sentence-transformers:" and that name.
    """

    install_hint = 'Run `pip install "memrecall[sentence-transformers]"`'
    load_hint = _LOAD_HINT

    def __init__(self, name: str) -> None:
        model = f"sentence-transformers:{name}"
        super().__init__(model, source=model)
        self._name = name

    def _load(self) -> Encode:
        from sentence_transformers import SentenceTransformer

        library = SentenceTransformer(self._name)
        return lambda texts: library.encode(
            texts, batch_size=BATCH_SIZE, show_progress_bar=False, convert_to_numpy=True
        )


class FastEmbedEmbedder(ThreadedEmbedder):
    """Embeds with any text model of the fastembed library, by its name.

    The stored name is "fastembed:" and that name.
    """

    install_hint = 'Run `pip install "memrecall[fastembed]"`'
    load_hint = _LOAD_HINT

    def __init__(self, name: str) -> None:
        model = f"fastembed:{name}"
        super().__init__(model, source=model)
        self._name = name

    def _load(self) -> Encode:
        from fastembed import TextEmbedding

        library = TextEmbedding(model_name=self._name)
        return lambda texts: list(library.embed(texts, batch_size=BATCH_SIZE))
