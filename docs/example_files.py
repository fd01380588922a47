"""The files that the pages' examples read: made up, the same on every machine, and messy where real ones are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

#: Price of a square metre, and how much prices of equal flats differ (a standard deviation of their logarithm).
DISTRICTS = {
    "suburbs": (2900, 0.05),
    "hills": (4200, 0.09),
    "harbour": (4700, 0.14),
    "centre": (5600, 0.11),
    "old town": (5100, 0.24),
}


def make_flats(n_rows: int, seed: int) -> pd.DataFrame:
    """Return sales of flats; prices are hard to tell in the old town and for large flats, and some years are gaps."""
    rng = np.random.default_rng(seed)
    area = rng.lognormal(4.25, 0.38, n_rows).clip(22, 260).round()
    district = rng.choice(list(DISTRICTS), n_rows, p=[0.34, 0.16, 0.14, 0.22, 0.14])
    rooms = (area / 24 + rng.normal(0, 0.6, n_rows)).round().clip(1, 9)
    floor = rng.integers(0, 8, n_rows)
    built = rng.integers(1890, 2024, n_rows).astype(float)
    per_metre, spread = np.array([DISTRICTS[name] for name in district]).T
    centre = area * per_metre * (1 + 0.012 * floor) * (1 + 0.002 * (built - 1960))
    price = centre * np.exp(spread * (0.6 + area / 120) * rng.normal(size=n_rows))
    built[rng.random(n_rows) < 0.06] = np.nan
    columns = {"area": area, "rooms": rooms, "floor": floor, "built": built, "district": district}
    return pd.DataFrame({**columns, "price": (price / 500).round() * 500}).astype({"built": "Int64"})


def make_orders(n_rows: int, seed: int, first: str = "2023-01-02", days: int = 720) -> pd.DataFrame:
    """Return orders by day: 40 shops, some of them rare, 400 products, gaps in the temperature, and slow growth."""
    rng = np.random.default_rng(seed)
    start = (pd.Timestamp(first) - pd.Timestamp("2023-01-02")).days
    day = np.sort(rng.integers(start, start + days, n_rows))
    shop, product = rng.zipf(1.4, n_rows) % 40, rng.integers(0, 400, n_rows)
    season = np.sin(2 * np.pi * day / 365)
    temperature = (11 + 9 * season + rng.normal(0, 3, n_rows)).round(1)
    promotion = rng.random(n_rows) < 0.2
    product_level = np.random.default_rng(7).lognormal(0, 0.5, 400)[product]
    centre = 40 * product_level * (1 + 0.2 * day / 365) * (1 + 0.25 * season) * np.where(promotion, 1.4, 1)
    amount = centre * np.exp((0.08 + 0.2 * promotion + 0.004 * shop) * rng.normal(size=n_rows))
    temperature[rng.random(n_rows) < 0.05] = np.nan
    return pd.DataFrame(
        {
            "day": (pd.Timestamp("2023-01-02") + pd.to_timedelta(day, unit="D")).strftime("%Y-%m-%d"),
            "shop": [f"shop {number:02}" for number in shop],
            "product": [f"P{number:03}" for number in product],
            "temperature": temperature,
            "promotion": np.where(promotion, "yes", "no"),
            "amount": amount.round(2),
        }
    )


def write(folder: Path) -> None:
    """Write the files into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "flats": make_flats(4000, seed=0),
        "sold_since": make_flats(1000, seed=1),
        "new_flats": make_flats(200, seed=2).drop(columns="price"),
        "orders": make_orders(2500, seed=0),
        "new_orders": make_orders(600, seed=1, first="2024-12-22", days=60),
    }
    for name, rows in files.items():
        rows.to_csv(folder / f"{name}.csv", index=False)
