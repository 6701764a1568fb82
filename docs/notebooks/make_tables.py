"""Writes the tables of the first hour into the current folder."""

import csv
import random
from datetime import date, timedelta

CITIES = ("Bern", "Oslo", "Rome")


def write(name, titles, rows):
    with open(name, "w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([titles, *rows])


def tables(month, first, n, towns, place):
    accounts, transfers = [], []
    for i in range(first, first + n):
        leaves = i % 3 == 0
        age = "" if random.random() < 0.1 else round(random.gauss(31 if leaves else 45, 9))
        town = "" if random.random() < 0.1 else random.choice(towns)
        opened = date(2020, 1, 1) + timedelta(days=random.randrange(1500))
        active = "false" if random.random() < (0.6 if leaves else 0.3) else "true"
        closed = "" if random.random() < 0.2 else "yes" if leaves else "no"
        accounts.append([f"A{i:04d}", age, town, opened, active, *[closed] * (month == "april")])
        for _ in range(5):
            near = random.random() < 0.8
            far = 3 * random.randrange(n // 3) if near else random.randrange(n)
            other = first + (i - first + far) % n
            transfers.append([f"A{i:04d}", f"A{other:04d}", random.randrange(1, 900)])
    titles = ["account", "age", place, "opened", "active", *["closed"] * (month == "april")]
    write(f"accounts_{month}.csv", titles, accounts)
    write(f"transfers_{month}.csv", ["from", "to", "amount"], transfers)


def main():
    random.seed(4)
    tables("april", first=0, n=900, towns=CITIES, place="city")
    tables("may", first=600, n=600, towns=(*CITIES, "Wien"), place="town")


if __name__ == "__main__":
    main()
