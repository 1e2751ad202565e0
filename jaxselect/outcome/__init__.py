"""One run, judged: what margin predicts, held against what flow integrates."""

from ..former_names import restore

globals().update(restore(__name__))
