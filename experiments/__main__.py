"""List the studies, in the order in which to meet them.

python -m experiments
"""

from experiments import STUDIES, about


def main() -> None:
    """Print one line per study."""
    print("python -m experiments.NAME --help, for NAME one of\n")
    for name in STUDIES:
        print(f"  {name:22}  {about(name)}")


if __name__ == "__main__":
    main()
