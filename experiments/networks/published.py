"""Bin means the authors published for richer networks; the source is in `published`.

Their x-axis for classes is not defined beside the tables; it spans a few hundredths,
as differences of frequencies do, and not −1 … 1, as posterior differences would.
"""

from experiments.text import published

MLP_SCORES = [4.76, 4.61, 3.26, 3.08, 2.8, 2.06, 1.6, 1.43, 0.89, 0.67]
MLP_SCORES += [0.59, 0.71, 1.11, 1.61, 2.02, 2.3, 3.28, 3.39, 4.84, 6.1]
MLP_VALUES = [0.13, 0.24, 0.06, 0.09, 0.04, 0.1, 0.01, 0.04, -0.01, 0.03]
MLP_VALUES += [0.06, 0.11, 0.18, 0.24, 0.34, 0.44, 0.57, 0.72, 0.87, 1.4]

CLASS_2 = [-0.026, -0.02, -0.017, -0.014, -0.011, -0.008, -0.005, -0.002, 0.001]
CLASS_2 += [0.005, 0.008, 0.011, 0.014, 0.017, 0.02, 0.023, 0.026, 0.029, 0.032]
CLASS_2_VALUES = [-42.375, -27.306, -51.164, -20.713, -40.923, -41.925, -41.884]
CLASS_2_VALUES += [-35.691, 18.255, 35.633, 30.524, 56.211, 44.184, 23.28, 45.341]
CLASS_2_VALUES += [43.21, 62.935, 81.274, 53.548]
CLASS_4 = [-0.021, -0.018, -0.016, -0.014, -0.011, -0.009, -0.007, -0.004, -0.002]
CLASS_4 += [0.0, 0.002, 0.005, 0.007, 0.009, 0.012, 0.014, 0.016, 0.019, 0.021]
CLASS_4_VALUES = [-64.776, -66.074, -37.04, -32.499, -31.109, -30.686, -26.341]
CLASS_4_VALUES += [-23.153, -22.31, -0.648, 31.915, 27.601, 30.951, 29.3, 19.455]
CLASS_4_VALUES += [29.693, 41.506, 34.151, 21.06]

# By study: column of our words, x of the bins, their means.
TABLES = {
    "two_layer": {
        "scores": (published.POSTERIOR, published.SCORES),
        "values": (published.POSTERIOR, published.VALUES),
    },
    "mlp": {
        "scores": (published.POSTERIOR, MLP_SCORES),
        "values": (published.POSTERIOR, MLP_VALUES),
        "turned": (published.POSTERIOR, MLP_VALUES),
    },
    "stars": {
        "values 1": (CLASS_2, CLASS_2_VALUES),
        "values 3": (CLASS_4, CLASS_4_VALUES),
    },
}
TABLES["two_layer_key_query"] = TABLES["smoke"] = TABLES["two_layer"]

# By study: the data its tables are of, and the number of their classes.
DATA = dict.fromkeys(TABLES, (published.DATA, 2)) | {"stars": ("yelp_review_full", 4)}
