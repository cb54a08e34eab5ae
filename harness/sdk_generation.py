"""The one place that knows how the SDK's generations differ: 0.33 (cookbook 0.5.7), 0.38 (0.5.8).

What differs for this project was found by running its own tests on both:

- A service client's ``create_*`` calls return a client in 0.33 and a future of one in 0.38.
- ``tinker.RestClient`` is new in 0.38.
- 0.33 asks the service for ``weights_info`` and creates a model before it loads a state into it;
  0.38 creates and loads in one call. The embedded service answers both.
- The cookbook is another release, so pins of one generation are no pins of the other.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import tinker

SDK_PACKAGE = "tinker"
CONSTRAINTS = {"0.33": "constraints-0.33.txt"}
"""Generations with a constraints file of their own; every other one: constraints.txt."""
COOKBOOK_WHEELS = {
    "0.5.7": "7d2490c5c4c4e1b5cf6a86be4a73e020a80e44cbbb4b071acf314d38fcd25f7f",
    "0.5.8": "93e5d30a55a5c7e7b9d00660ff9f207f9cb8530d2434d5b193bcba781404e58a",
}
"""The stock code of both arms, by release; a wheel carries no commit id, so its bytes name it."""
DEFAULT_COOKBOOK = "0.5.8"
"""The release that the repository's own pins name."""


def training_client(made: Any) -> tinker.TrainingClient:
    """Return the training client that a ``create_*`` call made, waiting for it where it is due."""
    return cast("tinker.TrainingClient", _ready(made))


def sampling_client(made: Any) -> tinker.SamplingClient:
    """Return the sampling client that a ``create_*`` call made, waiting for it where it is due."""
    return cast("tinker.SamplingClient", _ready(made))


def rest_client(client: tinker.ServiceClient) -> Any:
    """Return a client of the REST calls that shares the service client's headers.

    0.38 calls this deprecated; its replacement, ``tinker.RestClient``, is not in 0.33.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return client.create_rest_client()


def _ready(made: Any) -> Any:
    # A client has no result(); a future, also one that poses as a client, has.
    return made.result() if hasattr(made, "result") else made


def generation(version: str) -> str:
    """Return the generation of a release: "0.33.1" is of "0.33"."""
    return ".".join(version.split(".")[:2])


def constraints_name(version: str | None) -> str:
    """Return the constraints file that the installed SDK was installed by."""
    return CONSTRAINTS.get(generation(version or ""), "constraints.txt")
