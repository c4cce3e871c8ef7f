"""A Hugging Face `datasets.Dataset` put in bags, and a network that learns from what these report.

The rows stay in Arrow, in memory or mapped from disk: a column of ids says which bag each is in.
"""

import numpy as np

import bagwise as bw
from datasets import Dataset


def main() -> float:
    """Train a network on bags of 16 rows; its accuracy on single rows."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(8000, 2))
    y = (x[:, 0] * x[:, 1] > 0).astype(float)
    ids = bw.random_bags(len(x), size=16, random_state=0)
    rows = Dataset.from_dict({"x": x.astype(np.float32), "bag": ids})
    rows = rows.add_column("proportion", bw.aggregate(y, ids))  # all that training sees of y

    X = np.stack(rows.with_format("numpy")["x"][:])
    bags = bw.Bags.from_rows(rows.with_format("numpy")["proportion"][:], rows["bag"][:])
    model = bw.BagNeuralClassifier(learning_rate=0.03, max_epochs=40, cv=2, random_state=0).fit(X, bags=bags)

    scored = rows.remove_columns("proportion").add_column("score", model.predict_proba(X)[:, 1])
    accuracy = float(((np.asarray(scored["score"][:]) > 0.5) == y).mean())
    print(f"accuracy on single rows: {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    main()
