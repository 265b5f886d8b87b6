"""The names by which clients may call the model."""


class ModelNames:
    """`served`: comma-separated names, which /v1/models lists; empty: the plan's model.

    A Hugging Face id means the model too: owner and case do not count, and a suffix may follow at a hyphen
    (meta-llama/Llama-3.1-8B-Instruct is llama-3.1-8b).
    """

    def __init__(self, model: str, served: str) -> None:
        self.listed = tuple(name.strip() for name in served.split(",") if name.strip()) or (model,)
        self._model = model.lower()

    def knows(self, name: str) -> bool:
        """Whether a request for `name` is for this model; an empty name is."""
        if not name or name in self.listed:
            return True
        short = name.rpartition("/")[2].lower().removeprefix("meta-")
        return short == self._model or short.startswith(self._model + "-")
