"""Label: which model, in which variant, on which data set; written "dsvnp-strong@wq" in files."""

import sys
from typing import NamedTuple, Self

from dsvnp.plotting.style import NAMES, Look, look_of


class Label(NamedTuple):
    """The model, variant and data set of a row or unit of results."""

    model: str  # name of a model, or of what it is compared with: "dsvnp", "extra-trees"
    # what differs from the model as the paper has it: "strong", "beta-local-5"; "" for nothing
    variant: str = ""
    dataset: str = ""  # data set it was trained on, where an experiment has several

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str` wrote: the longest known model that it begins with, or all of it."""
        row, _, dataset = text.partition("@")
        known = [name for name in _model_names() if f"{row}-".startswith(f"{name}-")]
        model = max(known, key=len, default=row)
        return cls(model, row[len(model) + 1 :], dataset)

    def __str__(self) -> str:
        return f"{self.row}@{self.dataset}" if self.dataset else self.row

    @property
    def row(self) -> str:
        """The label without its data set, which a row of results names apart: "dsvnp-strong"."""
        return f"{self.model}-{self.variant}" if self.variant else self.model

    @property
    def file(self) -> str:
        """The label as a part of a file's name."""
        return f"{self.row}-on-{self.dataset}" if self.dataset else self.row

    @property
    def look(self) -> Look:
        """Its look in figures; the data set is named elsewhere."""
        return look_of(self.model, self.variant)


def _model_names() -> set[str]:
    """Names of all models: a report needs no torch for those that figures know."""
    registry = sys.modules.get("dsvnp.models")  # loaded wherever a user has registered a model
    return {*NAMES, *(registry.MODELS if registry else ())}
