"""Takes the names of this machine's folders out of logs, so that a run says the same anywhere.

Records name files relative to their run. Logs are written by libraries, which print absolute
paths; those begin with one of a few folders, each of which gets a name of its own.
"""

from __future__ import annotations

import sys
from pathlib import Path

_PROJECT = Path(__file__).parents[1]


def known_places(run_folder: Path) -> dict[str, str]:
    """Return folder → what stands for it, the longest path first.

    Args:
        run_folder: the run whose files are written.
    """
    places = {
        str(run_folder.resolve()): "<run>",
        str(run_folder): "<run>",
        str(_PROJECT): "<project>",
        sys.prefix: "<python>",
        sys.base_prefix: "<python>",
        str(Path.home()): "<home>",
    }
    usable = {place: name for place, name in places.items() if len(Path(place).parts) > 1}
    return dict(sorted(usable.items(), key=lambda item: -len(item[0])))


def without_places(text: str, places: dict[str, str]) -> str:
    """Return the text with every known folder replaced by its name."""
    for place, name in places.items():
        text = text.replace(place, name)
    return text
