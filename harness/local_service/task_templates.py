"""The kinds of word problem the embedded task is made of: words, numbers and steps.

A kind is data: a few wordings of one situation, the range each number is drawn from, and the
steps that solve it. `harness.local_service.task` draws from it. Nouns are plural only and every
number is at least 2, so that no wording needs a singular.
"""

from __future__ import annotations

from dataclasses import dataclass

NAMES = (
    *("Anna", "Ben", "Clara", "David", "Emma", "Felix", "Grace", "Henry", "Iris", "Jack"),
    *("Kira", "Leo", "Maya", "Noah", "Olga", "Paul", "Rosa", "Sam", "Tina", "Victor"),
)
THINGS = (
    *("apples", "books", "buttons", "cards", "coins", "cookies", "eggs", "flowers", "lemons"),
    *("marbles", "pencils", "photos", "plums", "shells", "stamps", "stickers", "stones", "toys"),
)
HOLDERS = (
    ("bags", "bag"),
    ("baskets", "basket"),
    ("boxes", "box"),
    ("drawers", "drawer"),
    ("jars", "jar"),
    ("shelves", "shelf"),
)


@dataclass(frozen=True)
class Step:
    """One line of working, ``left operator right = result``.

    ``left`` and ``right`` name a drawn number (``a`` to ``d``) or the result of an earlier step
    (``r1``, ``r2``); ``unit`` is the wording of what the result counts.
    """

    left: str
    operator: str
    right: str
    unit: str = "{things}"


@dataclass(frozen=True)
class Kind:
    """One situation: its wordings, inclusive ranges of its numbers, and its solution."""

    name: str
    wordings: tuple[str, ...]
    ranges: dict[str, tuple[int, int]]
    steps: tuple[Step, ...]


PROBLEM_KINDS = (
    Kind(
        "gain",
        (
            "{name} has {a} {things}. {other} gives {name} {b} more. "
            "How many {things} does {name} have now?",
            "After finding {b} {things} on the beach, {name} adds them to the {a} at home. "
            "How many is that?",
            "There were {a} {things} on the table and {name} puts {b} more there. "
            "How many {things} are on the table?",
        ),
        {"a": (15, 150), "b": (15, 99)},
        (Step("a", "+", "b"),),
    ),
    Kind(
        "loss",
        (
            "{name} had {a} {things} and lost {b} of them. How many {things} are left?",
            "From a pile of {a} {things}, {name} takes away {b}. How many remain?",
            "{name} bought {a} {things}. {other} borrowed {b} of these. "
            "How many does {name} still keep?",
        ),
        {"a": (30, 160), "b": (8, 90)},
        (Step("a", "-", "b"),),
    ),
    Kind(
        "groups",
        (
            "{name} packs {a} {holders} with {b} {things} in each {holder}. "
            "How many {things} are packed?",
            "Each {holder} holds {b} {things}. How many {things} fit in {a} {holders}?",
            "A room has {a} {holders}. Every {holder} contains {b} {things}. "
            "Find the total number of {things}.",
        ),
        {"a": (3, 15), "b": (3, 15)},
        (Step("a", "*", "b"),),
    ),
    Kind(
        "share",
        (
            "{name} shares {a} {things} equally among {b} friends. "
            "How many {things} does each friend get?",
            "{b} children split {a} {things} evenly. How many does every child receive?",
            "If {a} {things} are divided into {b} equal rows, how many {things} stand in a row?",
        ),
        {"a": (12, 108), "b": (3, 9)},
        (Step("a", "/", "b"),),
    ),
    Kind(
        "bus",
        (
            "A bus carries {a} people. At the station {b} get off and {c} get on. "
            "How many people ride the bus now?",
            "{a} people sit in a train. {b} leave at the first stop, then {c} enter. "
            "How many people are in the train?",
            "The bus to the city starts with {a} riders, drops {b} riders and picks up {c}. "
            "How many riders does it have?",
        ),
        {"a": (25, 90), "b": (5, 40), "c": (5, 60)},
        (Step("a", "-", "b", "people"), Step("r1", "+", "c", "people")),
    ),
    Kind(
        "stock",
        (
            "A shop orders {a} {holders} of {b} {things} and already has {c} {things}. "
            "How many {things} does the shop own?",
            "{name} fills {a} {holders} with {b} {things} each, and {c} {things} do not fit. "
            "How many {things} are there in all?",
            "On Monday {a} {holders} with {b} {things} each arrive. On Friday {c} loose {things} "
            "arrive. How many {things} arrive that week?",
        ),
        {"a": (3, 12), "b": (3, 12), "c": (4, 60)},
        (Step("a", "*", "b"), Step("r1", "+", "c")),
    ),
    Kind(
        "broken",
        (
            "A truck brings {a} {holders} of {b} {things}, but {c} of the {things} are broken. "
            "How many good {things} came?",
            "{name} carries {a} trays of {b} {things}. {c} fall and break. "
            "How many {things} stay whole?",
            "From {a} packs holding {b} {things} each, {other} throws out {c} bad {things}. "
            "How many good ones remain?",
        ),
        {"a": (4, 12), "b": (4, 12), "c": (3, 60)},
        (Step("a", "*", "b"), Step("r1", "-", "c")),
    ),
    Kind(
        "change",
        (
            "One ticket costs {a} dollars. {name} buys {b} tickets and pays with {c} dollars. "
            "How much change is due?",
            "{name} had {c} dollars and bought {b} tickets at {a} dollars apiece. "
            "How much money is left?",
            "The price of a ticket is {a} dollars. How many dollars of {c} does {name} keep "
            "after paying for {b} tickets?",
        ),
        {"a": (3, 15), "b": (3, 9), "c": (30, 150)},
        (Step("a", "*", "b", "dollars"), Step("c", "-", "r1", "dollars")),
    ),
    Kind(
        "times_as_many",
        (
            "{name} collected {a} {things}. {other} collected {b} times as many. "
            "How many did both collect together?",
            "{other} owns {b} times as many {things} as {name}, who owns {a}. "
            "What do they own altogether?",
            "A small chest has {a} {things} and a large chest has {b} times as many. "
            "How many lie in both chests?",
        ),
        {"a": (4, 20), "b": (2, 9)},
        (Step("a", "*", "b"), Step("r1", "+", "a")),
    ),
    Kind(
        "more_than",
        (
            "{name} scored {a} points in a game. {other} scored {b} points more than {name}. "
            "What was their combined score?",
            "Team red won {a} points and team blue won {b} points more than team red. "
            "What is the sum of points?",
            "The first quiz gave {name} {a} points. The second quiz gave {b} points more than "
            "the first. How many points from both?",
        ),
        {"a": (12, 70), "b": (4, 50)},
        (Step("a", "+", "b", "points"), Step("r1", "+", "a", "points")),
    ),
    Kind(
        "wages",
        (
            "{name} earns {a} dollars an hour, working {b} hours on Saturday and {c} hours on "
            "Sunday. How much does {name} earn?",
            "For washing cars {b} hours in the morning and {c} hours at night, {name} is paid "
            "{a} dollars per hour. What is the pay?",
            "A job pays {a} dollars every hour. {name} worked {b} hours, then {c} hours extra. "
            "What wage is owed?",
        ),
        {"a": (5, 15), "b": (2, 8), "c": (2, 7)},
        (Step("b", "+", "c", "hours"), Step("r1", "*", "a", "dollars")),
    ),
    Kind(
        "pool",
        (
            "{name} finds {a} {things} and {other} finds {b}. They divide all of them into {c} "
            "equal heaps. How large is one heap?",
            "Two sisters put {a} and {b} {things} together, then give the same number to each "
            "of {c} cousins. What does one cousin get?",
            "A class gathers {a} {things} before lunch and {b} after lunch, then sorts them "
            "into {c} equal sets. How big is each set?",
        ),
        {"a": (8, 60), "b": (8, 50), "c": (3, 9)},
        (Step("a", "+", "b"), Step("r1", "/", "c")),
    ),
    Kind(
        "after_spending",
        (
            "{name} saved {a} dollars, spent {b} dollars on a gift, and spread the rest over "
            "{c} weeks. How many dollars per week?",
            "With {a} dollars, {name} pays a bill of {b} dollars. The rest is put in {c} equal "
            "envelopes. How much is in one envelope?",
            "A club has {a} dollars. It pays {b} dollars for paint and gives {c} members equal "
            "parts of what remains. What is one part?",
        ),
        {"a": (30, 130), "b": (6, 60), "c": (3, 9)},
        (Step("a", "-", "b", "dollars"), Step("r1", "/", "c", "dollars")),
    ),
    Kind(
        "two_products",
        (
            "A farm keeps {a} pens of {b} goats and {c} pens of {d} sheep. "
            "How many animals live on the farm?",
            "In a barn, {a} stalls hold {b} goats each while {c} stalls hold {d} sheep each. "
            "Count the animals.",
            "{name} feeds {b} goats in each of {a} fields and {d} sheep in each of {c} fields. "
            "How many animals are fed?",
        ),
        {"a": (2, 9), "b": (3, 12), "c": (2, 9), "d": (3, 12)},
        (
            Step("a", "*", "b", "goats"),
            Step("c", "*", "d", "sheep"),
            Step("r1", "+", "r2", "animals"),
        ),
    ),
    Kind(
        "reading",
        (
            "A novel has {a} pages. {name} reads {b} pages a day for {c} days and {d} pages "
            "today. How many pages are unread?",
            "{name} must read {a} pages. So far {name} read {b} pages daily for {c} days, plus "
            "{d} pages more. How many pages to go?",
            "Of {a} pages, {name} finished {b} each evening for {c} evenings and later {d} "
            "pages. How many pages are unread?",
        ),
        {"a": (60, 160), "b": (4, 12), "c": (3, 7), "d": (5, 20)},
        (
            Step("b", "*", "c", "pages"),
            Step("r1", "+", "d", "pages"),
            Step("a", "-", "r2", "pages"),
        ),
    ),
    Kind(
        "half",
        (
            "{name} sold {a} {things} in April, and half as many in May. "
            "How many {things} were sold in both months?",
            "Last year a museum received {a} {things}; this year half as many came. "
            "How many came in the two years?",
            "In spring {name} drew {a} {things}, and in summer half that number. "
            "How many drawings did {name} make?",
        ),
        {"a": (12, 120), "b": (2, 2)},
        (Step("a", "/", "b"), Step("a", "+", "r1")),
    ),
)
