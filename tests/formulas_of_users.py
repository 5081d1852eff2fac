"""Formulas that users declare, with their sources, and inputs where their operations lose digits.

Each is spelt as its source spells it. `test_formulas_of_users.py` holds their kernels to the contract.
"""

from dataclasses import dataclass

import torch
from elements import Formula

Point = tuple[float, ...]
EVERY_DTYPE = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


@dataclass(frozen=True)
class Declared:
    """A formula of a user."""

    formula: Formula  # in the spec language, with its scalars and tensors
    points: tuple[Point, ...]  # inputs at which its kernels are judged
    source: str  # where it is from


def signed(*points: float) -> tuple[float, ...]:
    """Return each point and its negation."""
    return tuple(sign * x for x in points for sign in (1, -1))


SMALL = (1.3e-30, 1.1e-9, 3.7e-6, 1.03e-4, 1.7e-3, 0.0123)
AROUND_ONE = (0.0731, 0.26, 0.51, 0.83, 0.997, 1.003, 1.61, 2.7)
LARGE = (4.3, 9.7, 17.3, 33.1, 71.9, 88.9, 130.0)
TURNS = (0.5, 0.9921875, 1.0, -1.0, 2.0, 2.5, 472.484, -472.5, 1e9, 0.26, -0.0123, 3.7e-6)
HUGE = (1.7e3, 2.3e5, 4.1e8, 3.3e12, 2.9e18)
EVERY = signed(*SMALL, *AROUND_ONE, *LARGE, *HUGE)
POSITIVE = (*SMALL, *AROUND_ONE, *LARGE, *HUGE)
UNIT = (*SMALL, *AROUND_ONE[:5])  # in (0, 1)


def of_one(formula: str, points: tuple[float, ...], source: str, **params: float) -> Declared:
    """Return a row of one tensor, `x`."""
    return Declared(Formula(formula, params, dtypes=EVERY_DTYPE), tuple((x,) for x in points), source)


def of_several(
    formula: str, inputs: str, points: tuple[Point, ...], source: str, **params: float
) -> Declared:
    """Return a row of several tensors, whose names are separated by spaces."""
    return Declared(Formula(formula, params, tuple(inputs.split()), EVERY_DTYPE), points, source)


def pairs(first: tuple[float, ...], *others: tuple[float, ...]) -> tuple[Point, ...]:
    """Return points whose k-th coordinates are drawn from the k-th list, each list at another pace."""
    return tuple(
        (x, *(other[(k * (2 * n + 3) + n) % len(other)] for n, other in enumerate(others)))
        for k, x in enumerate(first)
    )


ORDINARY = signed(0.0123, 0.26, 0.83, 1.61, 2.7, 9.7, 33.1)
ELFWING = "Elfwing, Uchibe, Doya 2018, Sigmoid-weighted linear units"
ADAM = "Kingma, Ba 2015, Adam, algorithm 1"
BCE = "PyTorch documentation, torch.nn.BCEWithLogitsLoss"
ITU = "ITU-T G.711"
MAECHLER = "Mächler 2012, Accurately computing log(1 - exp(-|a|))"
FORMULAS = {
    "dsilu": of_one("sigmoid(x) * (1 + x * (1 - sigmoid(x)))", EVERY, ELFWING),
    "soft_exponential": of_one(
        "where(a < 0, -log(1 - a * (x + a)) / a, where(a > 0, (exp(a * x) - 1) / a + a, x))",
        signed(*SMALL, *AROUND_ONE, *LARGE[:-2]), "Godfrey, Gashler 2015", a=0.3,
    ),
    "soft_exponential_log": of_one(
        "-log(1 - a * (x + a)) / a", (*POSITIVE, *(-x for x in SMALL), -0.5), "Godfrey 2015", a=-0.3
    ),
    "pelu": of_one("where(x >= 0, a / b * x, a * (exp(x / b) - 1))", EVERY, "Trottier 2017", a=1.3, b=0.7),
    "sinc": of_one("where(x == 0, 1, sin(pi * x) / (pi * x))", signed(*SMALL, *AROUND_ONE, 4.3, 9.7),
                   "torch.sinc"),
    "sine_of_turns": of_one("sin(2 * pi * f * x)", TURNS, "Tancik 2020, Fourier features", f=1.5),
    "cosine_of_turns": of_one("cos(x * pi / 2)", TURNS, "Tancik 2020, Fourier features"),
    "cosine_of_shifted_turns": of_one("cos(x * pi / 2 + pi)", TURNS, "Tancik 2020, Fourier features"),
    "raised_cosine": of_one("0.5 * (1 + cos(pi * x))", TURNS, "Behler, Parrinello 2007"),
    "sinc_guarded": of_one("where(x == 0, 1, sin(x) / where(x == 0, 1, x))",
                           signed(*SMALL, *AROUND_ONE, 4.3, 9.7), "unnormalised sinc"),
    "expected_improvement": of_several(
        "m * ndtr(m / s) + s * exp(-0.5 * (m / s)**2) / sqrt(2 * pi)", "m s",
        pairs((*ORDINARY, -5.5), (0.51, 1.003, 2.7)), "Jones et al. 1998",
    ),
    "sinc_plain": of_one("sin(x) / x", signed(*SMALL, *AROUND_ONE, 4.3, 9.7), "unnormalised sinc"),
    "softsign_p": of_one("x / (p + abs(x))", EVERY, "Bergstra 2009", p=1.3),
    "colu": of_one("x / (1 - x * exp(-(x + exp(x))))", EVERY, "Vagerwal 2021, arXiv:2112.12078"),
    "richards": of_one("(1 + q * exp(-b * x))**(-1 / v)", EVERY, "Richards 1959", q=0.5, b=1.3, v=2.0),
    "generalized_logistic": of_one("1 / (1 + exp(-x))**a", EVERY, "Johnson et al. 1994", a=0.03),
    "smooth_step": of_one(
        "where(x <= -g / 2, 0, where(x >= g / 2, 1, -2 / g**3 * x**3 + 3 / (2 * g) * x + 0.5))",
        signed(*SMALL, *AROUND_ONE, 0.499, 0.4999), "Hazimeh 2020", g=1.0,
    ),
    "smooth_step_plain": of_one("x * x * (3 - 2 * x)", EVERY, "Perlin 1985"),
    "logit": of_one("log(x / (1 - x))", UNIT, "torch.logit"),
    "logit_difference": of_one("log(x) - log(1 - x)", (*UNIT, 0.4999, 0.5001), "scipy.special.logit"),
    "asinh": of_one("log(x + sqrt(x * x + 1))", EVERY, "Kahan 1987, Branch cuts"),
    "asinh_signed": of_one("sign(x) * log(abs(x) + sqrt(x * x + 1))", EVERY, "DLMF 4.37.16"),
    "atanh": of_one("0.5 * log((1 + x) / (1 - x))", signed(*UNIT), "DLMF 4.37.24"),
    "atanh_difference": of_one("(log(1 + x) - log(1 - x)) / 2", signed(*UNIT), "DLMF 4.37.24"),
    "acosh": of_one("log(x + sqrt(x * x - 1))", (1.0162, *AROUND_ONE[6:], *LARGE, *HUGE), "DLMF 4.37.19"),
    "gumbel_logpdf": of_one(
        "-((x - m) / b + exp(-(x - m) / b)) - log(b)", EVERY, "torch.distributions.Gumbel", m=0.0, b=1.0
    ),
    "gumbel_cdf": of_one("exp(-exp(-(x - m) / b))", EVERY, "torch.distributions.Gumbel", m=0.0, b=1.0),
    "box_cox": of_one("(x**lam - 1) / lam", (*POSITIVE, 0.99999, 1.00001), "Box, Cox 1964", lam=1e-6),
    "pseudo_huber": of_one("d**2 * (sqrt(1 + (x / d)**2) - 1)", EVERY, "Charbonnier 1997", d=1.5),
    "smooth_l1": of_several(
        "where(abs(x - y) < b, 0.5 * (x - y)**2 / b, abs(x - y) - 0.5 * b)", "x y",
        pairs(EVERY, ORDINARY), "torch.nn.SmoothL1Loss", b=1.0,
    ),
    "charbonnier": of_one("sqrt(x * x + eps * eps)", EVERY, "Lai 2017, LapSRN", eps=0.0),
    "bce_with_logits": of_several(
        "clamp(x, min=0) - x * y + log(1 + exp(-abs(x)))", "x y", pairs(EVERY, UNIT), BCE
    ),
    "bce_by_sigmoid": of_several(
        "-(y * log(sigmoid(x)) + (1 - y) * log(1 - sigmoid(x)))", "x y", pairs(EVERY, UNIT), BCE
    ),
    "kl_vae": of_several(
        "-0.5 * (1 + v - m**2 - exp(v))", "m v", pairs(ORDINARY, ORDINARY), "Kingma 2014"
    ),
    "kl_vae_of_variance": of_one("-0.5 * (1 + x - exp(x))", signed(*SMALL, *AROUND_ONE, *LARGE[:-2]),
                                 "Kingma, Welling 2014"),
    "kl_of_normals": of_several(
        "log(t / s) + (s**2 + (m - n)**2) / (2 * t**2) - 0.5", "m s n t",
        pairs(ORDINARY, (0.26, 0.83, 1.61), ORDINARY, (0.51, 1.003, 2.7)), "torch.distributions.kl",
    ),
    "adam": of_several(
        "p - lr * (m / (1 - b1)) / (sqrt(v / (1 - b2)) + eps)", "p m v",
        pairs(ORDINARY, ORDINARY, POSITIVE), ADAM, lr=1e-3, b1=0.9, b2=0.999, eps=1e-8,
    ),
    "elu_plus_one": of_one("where(x > 0, x, exp(x) - 1) + 1", EVERY, "Katharopoulos 2020"),
    "one_minus_where": of_one("1 - where(x > 0, exp(-x), 1 - x)", EVERY, "a survival function"),
    "log_of_elu_plus_one": of_one("log(1 + where(x > 0, x, exp(x) - 1))", EVERY, "log of a feature map"),
    "bent_identity": of_one("(sqrt(x * x + 1) - 1) / 2 + x", EVERY, "bent identity"),
    "mu_law": of_one("sign(x) * log(1 + mu * abs(x)) / log(1 + mu)", EVERY, ITU, mu=255.0),
    "mu_law_written": of_one("sign(x) * log(1 + 255 * abs(x)) / log(256)", EVERY, ITU),
    "mu_law_inverse": of_one(
        "sign(x) * ((1 + mu)**abs(x) - 1) / mu", signed(*SMALL, *AROUND_ONE), ITU, mu=255.0
    ),
    "mu_law_inverse_written": of_one("sign(x) * (256**abs(x) - 1) / 255", signed(*SMALL, *AROUND_ONE), ITU),
    "log1mexp": of_one("log(1 - exp(x))", tuple(-x for x in POSITIVE), MAECHLER),
    "log1mexp_abs": of_one("log(1 - exp(-abs(x)))", EVERY, MAECHLER),
    "scaled_erfc": of_one("exp(x * x) * erfc(x)", (*POSITIVE, *(-x for x in AROUND_ONE)),
                           "scipy.special.erfcx"),
    "hypot": of_several("sqrt(x * x + y * y)", "x y", pairs(EVERY, ORDINARY), "Moler, Morrison 1983"),
    "phi_2": of_one("(exp(x) - 1 - x) / x**2", signed(*SMALL[1:], *AROUND_ONE, *LARGE[:-2]),
                    "Hochbruck, Ostermann 2010, exponential integrators"),
    "x_minus_sine": of_one("x - sin(x)", signed(*SMALL, *AROUND_ONE, *LARGE), "Kepler's equation"),
    "one_minus_cosine": of_one("1 - cos(x)", signed(*SMALL, *AROUND_ONE, *LARGE), "haversine"),
    "roots_apart": of_one("sqrt(x + 1) - sqrt(x)", POSITIVE, "Higham 2002, section 1.7"),
    "log_1_plus_2x": of_one("log(1 + 2 * x)", (*POSITIVE, *(-x for x in SMALL)), "a monomial"),
    "log_1_minus_x": of_one("log(1 - x)", (*UNIT, *(-x for x in POSITIVE)), "a monomial"),
    "log_1_plus_square": of_one("log(1 + x**2)", EVERY, "Cauchy's loss"),
    "root_1_plus_2x": of_one("sqrt(1 + 2 * x) - 1", (*POSITIVE, *(-x for x in SMALL)), "a monomial"),
    "exp2_by_power": of_one("256**abs(x) - 1", signed(*SMALL, *AROUND_ONE), "a monomial"),
}  # fmt: skip
