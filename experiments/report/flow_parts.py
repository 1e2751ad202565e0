"""The flow of p on reviews: its course, its end, and where p rests."""

from experiments.report.charts import axis, chart, series
from experiments.report.cloud import cloud
from experiments.report.folders import Found
from experiments.report.numbers import num
from experiments.report.sections import Shown


def flow(found: Found) -> Shown:
    """‖p‖ and decided reviews over log t, and the words at the end."""
    results, columns = found.results, found.arrays
    times = columns["log_times"]
    shares = {"decided": "decided for one word", "train_accuracy": "right, seen"}
    shares["test_accuracy"] = "right, test"
    tied = ", ".join(str(columns["words"][place]) for place in columns["tied"][:12])
    sentences = [
        f"At log t = {num(log_time)} a word that had lost comes back."
        for log_time in results.get("returns", [])
    ]
    sentences.append(results["sentence"])
    if tied:
        sentences.append(
            f"{results['tied_words']} words rest at finite odds, in "
            f"{results['tied_dimensions']} dimensions: {tied}."
        )
    if results["growth"]:
        sentences.append(
            f"‖p‖ grows by {num(results['growth'])} per unit of log t; "
            f"{results['active_pairs']} of {results['pairs']:,} pairs decide."
        )
    return Shown(
        sentences,
        [
            chart(
                "text-flow-norm",
                "‖p‖ on reviews",
                "It grows like log t for ever where p goes on.",
                axis("log t"),
                axis("‖p‖"),
                [series("‖p‖", times, columns["norms"])],
            ),
            chart(
                "text-flow-shares",
                "Reviews decided, reviews right",
                f"Share of {results['reviews']:,} reviews.",
                axis("log t"),
                axis("share", range=[0, 1]),
                [
                    series(label, times, columns[name], colour=colour)
                    for colour, (name, label) in enumerate(shares.items())
                ],
            ),
            cloud(
                "text-flow-scores",
                "E·p at the end of the flow",
                columns["posterior_difference"],
                columns["scores"],
                columns["words"],
            ),
        ],
    )


def bridge(found: Found) -> Shown:
    """A row per cell."""
    table = [["c", "d", "η₀", "words", "end", "tied words", "‖p_mm‖"]]
    table += [
        [
            num(cell["at_least"]),
            str(cell["dim"]),
            num(cell["step_size"]),
            str(cell["words"]),
            cell["status"].replace("_", " ").lower(),
            str(cell["tied_words"]),
            num(cell["growth"]),
        ]
        for cell in found.results["cells"]
    ]
    counted = found.results["statuses"]
    return Shown(
        [", ".join(f"{name} {number}" for name, number in counted.items()) + "."],
        [],
        table,
    )
