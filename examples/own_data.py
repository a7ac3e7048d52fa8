"""Run a sweep on your own labeled sentences: a text column and a label column with any number of classes.

python own_data.py
"""

import csv
import itertools
from pathlib import Path

import raysweep

TICKETS = {
    "billing": (
        "I was charged twice for {}",
        "the invoice for {} is wrong",
        "please refund {}",
        "why did {} get dearer?",
    ),
    "delivery": (
        "{} has not arrived",
        "the parcel with {} is damaged",
        "where is {}?",
        "{} came a week late",
    ),
    "account": (
        "I cannot log in to order {}",
        "reset my password for {}",
        "my account has lost {}",
        "delete {} for good",
    ),
}
ITEMS = (
    "my order",
    "the headphones",
    "the desk",
    "two books",
    "the subscription",
    "a gift card",
    "the camera",
    "the bike",
)
PLACES = ("", " from last week", " again", " since Monday", " that I bought in May")


def write_tickets(path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["message", "topic"])
        for topic, templates in TICKETS.items():
            for template, item, place in itertools.product(templates, ITEMS, PLACES):
                writer.writerow([template.format(item + place), topic])


def main() -> None:
    write_tickets(Path("tickets.csv"))
    overrides = {
        "name": "tickets",
        "data.train": "tickets.csv",
        "data.text_column": "message",
        "data.label_column": "topic",
        "budget.trials": 2,
    }
    results = raysweep.run_sweep(raysweep.load_sweep("smoke", overrides), on_progress=print)
    print(
        results.front[["point", "dev_polarity", "dev_similarity", "config_loss"]].to_string(
            index=False
        )
    )
    results.front_figure().save("front.png")
    print(f"run: {results.location}")


if __name__ == "__main__":
    main()
