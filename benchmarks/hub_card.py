"""What a repository of the hub says of itself in its README, read the way `datasets` reads it."""

from __future__ import annotations

from yaml import YAMLError

from benchmarks.errors import MissingPackage, UserError
from benchmarks.hub import fetch

README = "README.md"


def stated_sizes(repository: str, revision: str | None = None) -> dict[str, dict[str, int]]:
    """The numbers of rows that a repository states for its splits.

    Args:
        repository: Its id.
        revision: As in `hub.fetch`.

    Returns:
        Rows by the hub's names of configuration and split (`distractor`, `validation`); empty where it states none.

    Raises:
        UserError: It has no README, or this is not one that `datasets` can read (also: what `fetch` raises).
        MissingPackage: `datasets` is not installed.
    """
    try:
        from datasets.info import DatasetInfosDict
        from huggingface_hub import DatasetCard
    except ImportError as error:
        raise MissingPackage("datasets", "hub", "the sizes that a repository states") from error
    (path,) = fetch(repository, [README], revision).paths
    try:
        infos = DatasetInfosDict.from_dataset_card_data(DatasetCard.load(path).data)
    except (YAMLError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"what {repository} says of itself cannot be read: {str(error).splitlines()[0]}", where=str(path)) from error
    return {config: {name: split.num_examples for name, split in info.splits.items()} for config, info in infos.items() if info.splits}
