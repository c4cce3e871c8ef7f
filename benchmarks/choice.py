"""Do choices keep what a plan says of them? Writes docs/results/choice.json and the tables of docs/planning.md.

Rows are never drawn: a bag is its count and its rows on each of a few levels of x, as in
`bagwise.experiments.simulation`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from scipy import special
from scipy.linalg import hadamard

from bagwise.experiments.simulation import Simulation, draw
from bagwise.losses import clip_threshold, debiased_square_of_sums
from bagwise.risk import own_risk
from bagwise.theory import Setting, bag_information, expected_regret, laplace_variance, likely_bags, likely_regret
from bagwise.utils.files import replacing

DOCS = Path(__file__).parents[1] / "docs"
LEVELS, ERROR = 128, 0.05
DIRECTIONS = hadamard(LEVELS)[1:]  # orthogonal, of mean 0


def class_at(distances) -> Simulation:
    """A truth and others at these distances from it, in directions of their own."""
    truth = np.full(LEVELS, 0.5)
    functions = np.stack([truth, *(truth + np.sqrt(distances)[:, None] * DIRECTIONS[: len(distances)])])
    return Simulation(title="", weight=np.full(LEVELS, 1 / LEVELS), truths=truth[None], hypotheses=functions)


def risks(count, sums, size: int, how: str, *, regret: float, problem: Simulation):
    """(hypotheses,) clipped risks of one trial.  count: (m,).  sums: (m, hypotheses)."""
    bags, gap = len(count), count[:, None] - sums
    clip = np.full(bags, clip_threshold(size, regret=regret, estimated=how != "known"))
    if how == "all bags":
        return own_risk(gap, np.full(bags, size), None, clip=clip)[0]
    aside = bags // 2 if how == "split" else 0
    given = {"prior": problem.prior, "mean": problem.means}
    if how == "split":
        given = {"prior": count[:aside].mean() / size, "mean": sums[:aside].mean(axis=0) / size}
    used, clip = slice(aside, None), clip[aside:, None]
    return debiased_square_of_sums(sums[used], size, count[used, None] / size, clip=clip, **given).mean(axis=0)


def choices(problem: Simulation, size: int, bags: int, trials: int, hows, regret: float, rng) -> dict:
    """(trials,) regret of what is chosen, by where p and E[h] come from."""
    found = {how: [] for how in hows}
    for _ in range(trials):
        v = draw(problem, size, np.zeros(1, dtype=int), bags, rng)[0].astype(float)
        sums = v[:, 1:] @ problem.hypotheses.T
        for how in hows:
            best = risks(v[:, 0], sums, size, how, regret=regret, problem=problem).argmin()
            found[how].append(problem.regrets[0, best])
    return {how: np.array(one) for how, one in found.items()}


def error_rates(rng) -> list[dict]:
    lines = []
    for size in (8, 64, 512):
        for regret in (0.02, 0.05):
            bags = int(likely_bags(Setting(size=size), regret))
            hows = ("all bags", "known", "split")
            found = choices(class_at(np.full(99, regret)), size, bags, 400, hows, regret, rng)
            wrong = {how: float((one > 0).mean()) for how, one in found.items()}
            lines.append({"k": size, "regret": regret, "bags": bags, "promised": ERROR, **wrong})
            print(lines[-1])
            sys.stdout.flush()
    return lines


def spreads(scale: float, rng) -> dict:
    """Classes of 99 others whose distances come up to a scale."""
    return {
        "all at one distance": np.full(99, scale),
        "evenly spread": rng.uniform(0, scale, 99),
        "evenly spread on a log scale": scale * 100 ** -rng.uniform(size=99),
        "normal perturbations": scale * rng.chisquare(16, 99) / 16,
    }


def random_classes(rng) -> list[dict]:
    size, bags = 64, 300
    setting = Setting(size=size)
    expected, likely = expected_regret(setting, bags), likely_regret(setting, bags)
    found: dict[str, list] = {}
    for scale in expected * np.geomspace(0.3, 10, 7):
        runs: dict[str, list] = {}
        for _ in range(8):
            for name, distances in spreads(min(scale, 0.2), rng).items():
                chosen = choices(class_at(np.minimum(distances, 0.25)), size, bags, 20, ("all bags",), 0.01, rng)
                runs.setdefault(name, []).append(chosen["all bags"])
        for name, one in runs.items():
            regret = np.concatenate(one)
            found.setdefault(name, []).append((regret.mean(), (regret > likely).mean()))
    lines = [
        {
            "class": name, "bags": bags, "expected": expected, "mean": max(mean for mean, _ in one),
            "likely": likely, "missed": max(missed for _, missed in one),
        }
        for name, one in found.items()
    ]  # fmt: skip
    print(*lines, sep="\n")
    return lines


def formed(rng) -> list[dict]:
    """How often the better of two is missed at the bags that make it likely, p = 0.4, bags of 128."""
    p, size, trials, regret = 0.4, 128, 1000, 0.02
    ramp = np.linspace(-1, 1, 16)
    truth = p + 0.2 * ramp
    gap = hadamard(16)[5] - ramp * (hadamard(16)[5] @ ramp) / (ramp @ ramp)
    other = truth + gap * np.sqrt(regret / (gap**2).mean())
    risk, lines = float((truth * (1 - truth)).mean()), []
    cases = [{}, {"formation": "rates", "rates_sd": 0.05}, {"formation": "rates", "rates_sd": 0.15},
             {"formation": "effects", "effects_sd": 0.2}, {"formation": "effects", "effects_sd": 0.5}]  # fmt: skip
    for given in cases:
        for epsilon in (None, 0.2):
            setting = Setting(size=size, prior=p, risk=risk, epsilon=epsilon, hypotheses=2, error=0.1, **given)
            bags, wrong = int(likely_bags(setting, regret)), 0
            shape = (50, bags)
            for _ in range(0, trials, 50):
                noise = np.zeros(shape)
                if epsilon is not None:
                    noise = rng.geometric(-np.expm1(-epsilon), shape) - rng.geometric(-np.expm1(-epsilon), shape)
                wrong += int((worse(setting, truth, other, shape, noise, rng) < 0).sum())
            random = Setting(size=size, prior=p, risk=risk, epsilon=epsilon)
            worth = bag_information(setting) / bag_information(random)
            line = {"formation": setting.formation, "sd": setting.rates_sd or setting.effects_sd, "epsilon": epsilon}
            lines.append({**line, "worth": worth, "bags": bags, "promised": 0.1, "missed": wrong / trials})
            print(lines[-1])
    return lines


def worse(setting: Setting, truth, other, shape, noise, rng):
    """Estimated risk of the other function above that of the truth: by slopes under rates, else by residuals."""
    size, p = setting.size, setting.prior
    if setting.formation == "rates":
        a = p * (1 - p) / setting.rates_sd**2 - 1
        count = rng.binomial(size, rng.beta(p * a, (1 - p) * a, shape))
        levels = rng.multinomial(count, truth / truth.sum())
        levels = levels + rng.multinomial(size - count, (1 - truth) / (1 - truth).sum())
        alpha, gap = (count + noise) / size, levels @ (other - truth) / size
        off = alpha - alpha.mean(axis=1, keepdims=True)
        spread = (off**2).sum(axis=1) - (shape[1] - 1) * laplace_variance(setting.epsilon) / size**2
        prior = alpha.mean(axis=1)
        told = prior * gap.mean(axis=1) + prior * (1 - prior) * (off * gap).sum(axis=1) / spread
        return (other**2 - truth**2).mean() - 2 * told
    levels = rng.multinomial(size, np.full(len(truth), 1 / len(truth)), size=shape)
    effect = (setting.effects_sd or 0.0) * rng.normal(size=(*shape, 1))
    rest = rng.binomial(levels, special.expit(special.logit(truth) + effect)).sum(axis=-1) + noise - levels @ truth
    gap = levels @ (other - truth)
    return (gap**2 - 2 * gap * (rest - rest.mean(axis=1, keepdims=True))).sum(axis=1)


def tables(found: dict) -> dict[str, str]:
    def lines(head: str, rows) -> str:
        return "\n".join([head, "|" + " --- |" * (head.count("|") - 1), *rows])

    return {
        "errors": lines(
            "| k | regret | bags | promised | all bags (default) | p and E[h] known | split |",
            [
                f"| {one['k']} | {one['regret']} | {one['bags']} | {one['promised']:.0%} | {one['all bags']:.1%} "
                f"| {one['known']:.1%} | {one['split']:.1%} |"
                for one in found["errors"]
            ],
        ),
        "classes": lines(
            "| distances of the others | mean regret, largest | expected | above likely, most often | promised |",
            [
                f"| {one['class']} | {one['mean']:.4f} | {one['expected']:.4f} | {one['missed']:.1%} | {ERROR:.0%} |"
                for one in found["classes"]
            ],
        ),
        "formations": lines(
            "| bags of 128 | ε | worth, in random bags | bags | promised | missed |",
            [
                f"| {one['formation']}{'' if one['sd'] is None else ', ' + format(one['sd'], 'g')} "
                f"| {one['epsilon'] or 'none'} | {one['worth']:.2f} | {one['bags']:,} | {one['promised']:.0%} "
                f"| {one['missed']:.1%} |"
                for one in found["formations"]
            ],
        ),
    }


def main() -> None:
    rng = np.random.default_rng(0)
    found = {"errors": error_rates(rng), "classes": random_classes(rng), "formations": formed(rng)}
    page, place = DOCS / "planning.md", DOCS / "results" / "choice.json"
    text = page.read_text()
    for name, table in tables(found).items():
        before, rest = text.split(f"<!-- {name} -->")
        text = f"{before}<!-- {name} -->\n{table}\n<!-- /{name} -->{rest.split(f'<!-- /{name} -->')[1]}"
    with replacing(place, page) as (facts, written):
        facts.write_text(json.dumps(found, indent=1) + "\n")
        written.write_text(text)
    print(f"Written: {place}, {page}")


if __name__ == "__main__":
    main()
