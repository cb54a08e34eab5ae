"""Which rows a data set is known to have, so that nobody trains or scores on others.

A name on a hub says nothing about bytes: rows can be corrected under it at any time. The revision
says which state is asked for, the digests say whether it came, from the hub or from a folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harness.errors import DocumentError
from harness.spec_model import Dataset, RowDigests


@dataclass(frozen=True, slots=True)
class DatasetPin:
    """One known state of a data set.

    Attributes:
        revision: the hub's commit, None where the rows never come from a hub.
        rows_sha256: split → digest of its (question, answer) pairs, in file order.
    """

    revision: str | None
    rows_sha256: Mapping[str, str]


KNOWN: Mapping[str, DatasetPin] = {
    "openai/gsm8k": DatasetPin(
        revision="e53f048856ff4f594e959d75785d2c2d37b678ee",
        rows_sha256={
            "train": "126e6307f9a2cc465b079a81e854c812a599065e600989c5e74e662496cd5cda",
            "test": "b7785caf6596287b47b3a7a1c4ac7b11c5d481ea6aacd28ff546695559664380",
        },
    )
}
"""GSM8K's main configuration: 7473 and 1319 rows. The digests are of the public files; the hub's
commit is the one in wide use and holds the same rows, or loading stops and says so."""


def pin_of(dataset: Dataset) -> DatasetPin | None:
    """Return what the spec pins, else what is known of the data set, else None."""
    known = KNOWN.get(dataset.hf_path)
    own: RowDigests | None = dataset.rows_sha256
    if own is None and dataset.revision is None:
        return known
    if own is not None:
        digests: Mapping[str, str] = own.model_dump()
    else:
        # Another revision is another state: the known digests do not speak of it.
        digests = known.rows_sha256 if known and known.revision == dataset.revision else {}
    return DatasetPin(dataset.revision, digests)


def expect_pinned_rows(dataset: Dataset, split: str, found_sha256: str, source: str) -> None:
    """Refuse rows other than the pinned ones.

    Raises:
        DocumentError: naming both digests.
    """
    pin = pin_of(dataset)
    expected = pin.rows_sha256.get(split) if pin is not None else None
    if expected is not None and expected != found_sha256:
        raise DocumentError(
            f"the {split} rows of {dataset.hf_path} are not the pinned ones",
            expected=f"sha256 {expected} over all (question, answer) pairs",
            found=f"sha256 {found_sha256}",
            where=source,
            fix="use the pinned rows, or write a revised spec with dataset.rows_sha256 of its own",
        )
