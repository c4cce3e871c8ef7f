r"""`bagwise.losses.tilting` on tensors, as steps of training need it: likelihood and gradient alone, where they are.

The formulas are the same, in double precision. Tilts that have settled stay as they are, so that a bag's figures do
not depend on the other bags of its batch; all frequencies of the exact formula are one product.
"""

import math

import torch
from torch import Tensor

from bagwise.bags import Bags
from bagwise.losses.tilting import EXACT_UP_TO, FREQUENCIES, LEAST_EXTRA, LEAST_VARIANCE, STEPS, TINY
from bagwise.utils.typing import Array

_AT_ONCE = 2**16  # numbers of the exact formula: they stay near the processor
_NEAR = 1e-7  # relative, of the count: one more of Newton's steps leaves an error of about the square


class _Places:
    """Sums over the rows of bags, and values of bags for their rows.

    Rows of bags of one size are a matrix (m, k), of others a vector (n,); leading axes are kept.
    sizes: (m,) people whom the rows of bags stand for.  whole: (m,) whether each row stands for a whole number of them.
    """

    def __init__(self, bags: Bags, like: Tensor) -> None:
        self.m, self.equal, device = len(bags), bags.equal_size, like.device
        rows = torch.from_numpy(bags.offsets[1:] - bags.offsets[:-1]).to(device)
        if self.equal is None:
            self.owner = torch.arange(self.m, device=device).repeat_interleave(rows)
        self.weight, self.whole = None, torch.ones(self.m, dtype=torch.bool, device=device)
        self.sizes = rows.double()
        if bags.weight is not None:
            weight = _as_tensor(bags.weight, like)
            weight = weight if self.equal is None else weight.view(-1, self.equal)
            self.sizes, self.whole = self.sum(weight), self.sum((weight != weight.round()).double()) == 0
            self.weight = weight

    def sum(self, values: Tensor) -> Tensor:
        """(…, m) of values of rows, as often as their weights say."""
        values = values if self.weight is None else self.weight * values
        if self.equal is not None:
            return values.sum(-1)
        return values.new_zeros(*values.shape[:-1], self.m).index_add_(-1, self.owner, values)

    def product(self, values: Tensor) -> Tensor:
        """(…, m) of values of rows."""
        if self.equal is not None and self.weight is None:
            return values.prod(-1)
        return torch.exp(self.sum(torch.log(values)))

    def rows(self, values: Tensor) -> Tensor:
        """Values (…, m) that go with those of rows."""
        return values.unsqueeze(-1) if self.equal is not None else values.index_select(-1, self.owner)

    def ends(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """(m,) the least and the largest of values of rows."""
        if self.equal is not None:
            return values.amin(-1), values.amax(-1)
        least, largest = (
            values.new_zeros(self.m).scatter_reduce(0, self.owner, values, kind, include_self=False)
            for kind in ("amin", "amax")
        )
        return least, largest


@torch.no_grad()
def tilted_tensors(
    s: Tensor, bags: Bags, *, effect_variance: float = 0.0, exact_up_to: int = EXACT_UP_TO
) -> tuple[Tensor, Tensor]:
    """The log-likelihood of the counts of bags, and its derivative by the scores; see `bagwise.losses.tilting.tilted`.

    Parameters
    ----------
    s : Tensor of shape (n,)
        Scores (log odds) in bag order.
    bags : Bags
        Whose counts are k times their proportions.
    effect_variance : float, default 0
        τ² of effects of bags.
    exact_up_to : int, default 20
        Rows of the largest bag that is computed exactly without need.

    Returns
    -------
    Tensor, Tensor
        Of shape (m,) and (n,), of the kind of the scores.
    """
    if len(bags) == 0:
        return s.new_zeros(0), s.new_zeros(0)
    like, s = s, s.to(home_of_doubles(s.device)).double()
    places = _Places(bags, s)
    s = s if places.equal is None else s.view(-1, places.equal)
    size, h = places.sizes, torch.sigmoid(s)
    noise = None if bags.noise_variance is None else _as_tensor(bags.noise_variance, s)
    count, whole = size * _as_tensor(bags.proportion, s), places.whole
    whole = whole if noise is None else whole & (noise == 0)
    count = torch.where(whole, count.round(), count)
    extra = torch.zeros_like(size) if noise is None else noise
    if effect_variance:
        effects = effect_variance * places.sum(h * (1 - h)) ** 2
        extra = extra + torch.where(effects > LEAST_EXTRA, effects, 0.0)
    known = (extra == 0) & ((count <= 0) | (count >= size))
    some_known = bool(known.any())
    value, slope = torch.zeros_like(size), torch.zeros_like(s)
    if not (some_known and bool(known.all())):
        t = _solve(s, h, places, count, extra, known)
        moved = s + places.rows(t)
        q = torch.sigmoid(moved)
        v = q * torch.sigmoid(-moved)
        variance = (places.sum(v) + extra).clamp(min=TINY)
        base = places.sum(_softplus(moved) - _softplus(s)) + t * (extra * t / 2 - count)
        exact = ~known & whole & ((size <= exact_up_to) | (variance < LEAST_VARIANCE))
        alone = bool(exact.any())
        if not (alone and bool((exact | known).all())):
            value, slope = _series(q, v, variance, places)
            value, slope = base + value, q - h + slope
        if alone:
            n = min(int(size[exact].max()) + 1, max(exact_up_to + 1, FREQUENCIES)) | 1  # odd: none is π
            log_p, given = _exact(q, places, count - extra * t, extra, n)
            value, slope = torch.where(exact, base + log_p, value), torch.where(places.rows(exact), given - h, slope)
    if some_known:
        ones, rows = places.rows(count > 0), places.rows(known)
        value = torch.where(known, -places.sum(_softplus(torch.where(ones, -s, s))), value)
        slope = torch.where(rows, ones.double() - h, slope)
    return value.to(like.dtype).to(like.device), slope.reshape(-1).to(like.dtype).to(like.device)


def home_of_doubles(device: torch.device) -> torch.device:
    """Where numbers in double precision go that belong to a device: to itself, or to the CPU where it knows none.

    Parameters
    ----------
    device : torch.device
        Where the others are.

    Returns
    -------
    torch.device

    Examples
    --------
    >>> home_of_doubles(torch.device("mps"))
    device(type='cpu')
    """
    return torch.device("cpu") if device.type == "mps" else device


def _as_tensor(values: Array, like: Tensor) -> Tensor:
    return values.to(like) if isinstance(values, Tensor) else torch.tensor(values, device="cpu").to(like)


def _solve(s: Tensor, h: Tensor, places: _Places, count: Tensor, extra: Tensor, known: Tensor) -> Tensor:
    """(m,) the tilts, by Newton's method kept between bounds; 0 where all labels are known."""
    size = places.sizes
    least, largest = places.ends(s)
    odds = torch.logit((count / size).clamp(0, 1))
    # Without extra variance the tilt moves some row's odds to those of the count; with it, it stays closer to 0.
    low, high = odds - largest, odds - least
    noised = extra > 0
    if bool(noised.any()):
        gap = count - places.sum(h)
        far = gap / extra.clamp(min=TINY)
        low = torch.where(noised, torch.where(gap < 0, torch.maximum(far, low.clamp(max=0)), 0.0), low)
        high = torch.where(noised, torch.where(gap > 0, torch.minimum(far, high.clamp(min=0)), 0.0), high)
    near = _NEAR * torch.where(noised, 1 + count.abs(), torch.minimum(count, size - count))
    t = torch.zeros_like(odds).clamp(low, high).masked_fill(known, 0.0)
    settled = known
    for _ in range(STEPS):
        q = torch.sigmoid(s + places.rows(t))
        over = places.sum(q) + extra * t - count
        above = over > 0
        high, low = torch.where(above, t, high), torch.where(above, low, t)
        moved = t - over / (places.sum(q - q * q) + extra)
        moved = torch.where((moved >= low) & (moved <= high), moved, (low + high) / 2)
        t = torch.where(settled, t, moved)
        settled = settled | (over.abs() <= near) | (high - low <= 1e-14 * (1 + t.abs()))
        if bool(settled.all()):
            break
    return t


def _softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)) to an absolute precision, at a fifth of the time that torch takes for a relative one."""
    return torch.relu(x) - torch.log(torch.sigmoid(x.abs()))


def _series(q: Tensor, v: Tensor, variance: Tensor, places: _Places) -> tuple[Tensor, Tensor]:
    """(m,) the logarithm of the density at the middle, and its derivative by the scores, tilts following."""
    skew, flat = v * (1 - 2 * q), v * (1 - 6 * v)
    steep = skew * (1 - 12 * v)
    m3, m4, m5 = places.sum(skew), places.sum(flat), places.sum(steep)
    corrected = (variance >= LEAST_VARIANCE).double()
    w = variance.clamp(min=LEAST_VARIANCE)
    by_m4, by_m3 = corrected / (8 * w**2), corrected * m3 * (-5 / 12) / w**3
    value = -0.5 * torch.log(2 * math.pi * variance) + by_m4 * m4 + by_m3 * m3 / 2
    by_variance = -0.5 / variance - (2 * by_m4 * m4 + 1.5 * by_m3 * m3) / w
    by_tilt = (by_variance * m3 + by_m3 * m4 + by_m4 * m5) / variance
    a, b, c, d = (places.rows(one) for one in (by_variance, by_m3, by_m4, by_tilt))
    return value, a * skew + b * flat + c * steep - d * v


def _exact(q: Tensor, places: _Places, target: Tensor, extra: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """(m,) log probability of the tilted count, and of each row's label 1 given it, by Fourier's formula."""
    frequencies = 2 * math.pi / n * torch.arange(n // 2 + 1, dtype=q.dtype, device=q.device)
    p, ones = torch.zeros_like(target), torch.zeros_like(q)
    for part in frequencies.split(max(1, _AT_ONCE // q.numel())):
        omega = part[:, None]
        turn = torch.exp(1j * omega)
        weight = torch.exp(-1j * omega * target - extra * omega**2 / 2) * torch.where(omega == 0, 1.0, 2.0)
        turn = turn.view(-1, *(1,) * q.ndim)
        z = 1 + q * (turn - 1)
        term = weight * places.product(z)
        p += term.real.sum(0)
        ones += (places.rows(term) * (turn / z)).real.sum(0)
    p = p.clamp(min=TINY)
    return torch.log(p / n), q * ones / places.rows(p)
