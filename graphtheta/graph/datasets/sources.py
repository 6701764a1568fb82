"""What is known about the named data sets, and where their original files are.

Addresses name a commit where the place has commits, so that the files behind them do not change.
SHA-256 and size were computed from the files of these commits. A file without them has the
checksum of its first download, see :mod:`graphtheta.graph.datasets.download`.
"""

from __future__ import annotations

from dataclasses import dataclass

MIT = "MIT"
UNSTATED = "not stated"
# made by this package
GENERATED = "generated"


@dataclass(frozen=True)
class RawFile:
    """A file at a public address.

    Attributes:
        address: Where it is.
        n_bytes: Its size; None if unknown.
        sha256: Its SHA-256, in hexadecimal; empty if unknown.
    """

    address: str
    n_bytes: int | None = None
    sha256: str = ""

    @property
    def name(self) -> str:
        """The name of the file, without its folder."""
        return self.address.rpartition("/")[2]


@dataclass(frozen=True)
class Facts:
    """What is known about a named graph.

    Attributes:
        nodes, edges, features, classes: Numbers of :func:`graphtheta.load` with its defaults.
        task: What it is used for.
        licence: That of the place the files come from; the data may have terms of their own.
        form: The format of the original files, of
            :data:`graphtheta.graph.datasets.convert.FORMS`.
        files: The original files; empty if no public address is known.
    """

    nodes: int
    edges: int
    features: int
    classes: int
    task: str
    licence: str = UNSTATED
    form: str = ""
    files: tuple[RawFile, ...] = ()

    @property
    def n_bytes(self) -> int | None:
        """Size of all files together; None if it is unknown or there are none."""
        sizes = [file.n_bytes for file in self.files]
        stated = [size for size in sizes if size is not None]
        return sum(stated) if sizes and len(stated) == len(sizes) else None


GITHUB = "https://raw.githubusercontent.com"
PLANETOID = f"{GITHUB}/kimiyoung/planetoid/af6abf468a772cc055bec88c52e4d6f51b7c37e3/data"
PITFALLS = f"{GITHUB}/shchur/gnn-benchmark/1e72912a0810cdf27ae54fd589a3b43358a2b161/data/npz"
CONVE = f"{GITHUB}/TimDettmers/ConvE/f3c0eb286025410fa5b4c04696c918264163d0ca"
SNAP = "https://snap.stanford.edu/data"

# size and SHA-256 of the file of each part
PLANETOID_FILES: dict[str, dict[str, tuple[int | None, str]]] = {
    "cora": {
        "x": (22_119, "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab"),
        "y": (4_054, "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1"),
        "tx": (148_025, "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a"),
        "ty": (28_135, "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad"),
        "allx": (257_305, "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543"),
        "ally": (47_959, "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71"),
        "graph": (59_847, "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d"),
        "test.index": (5_000, "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875"),
    },
    "citeseer": {
        "x": (31_087, "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6"),
        "y": (3_014, "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924"),
        "tx": (260_321, "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21"),
        "ty": (24_135, "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce"),
        "allx": (595_021, "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668"),
        "ally": (55_623, "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95"),
        "graph": (61_987, "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7"),
        "test.index": (5_000, "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4"),
    },
    "pubmed": {
        "x": (23_172, "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33"),
        "y": (854, "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3"),
        "tx": (405_505, "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d"),
        "ty": (12_135, "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd"),
        "allx": (None, ""),
        "ally": (224_739, "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e"),
        "graph": (471_808, "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9"),
        "test.index": (6_000, "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5"),
    },
}


def planetoid(name: str) -> tuple[RawFile, ...]:
    """The eight files of a Planetoid data set."""
    return tuple(
        RawFile(f"{PLANETOID}/ind.{name}.{part}", n_bytes, sha256)
        for part, (n_bytes, sha256) in PLANETOID_FILES[name].items()
    )


CLASSES, LINKS, REGRESSION = "node classes", "links", "edge values"
WHOLE, TOPOLOGY = "whole graphs", "topology only"

FACTS: dict[str, Facts] = {
    "sbm": Facts(
        nodes=5_000,
        edges=50_000,
        features=32,
        classes=8,
        task=CLASSES,
        licence=GENERATED,
    ),
    "rmat": Facts(
        nodes=4_096,
        edges=53_342,
        features=16,
        classes=8,
        task=CLASSES,
        licence=GENERATED,
    ),
    "ring": Facts(
        nodes=12,
        edges=24,
        features=4,
        classes=2,
        task=CLASSES,
        licence=GENERATED,
    ),
    "star": Facts(
        nodes=12,
        edges=22,
        features=4,
        classes=2,
        task=CLASSES,
        licence=GENERATED,
    ),
    "cora": Facts(
        nodes=2_708,
        edges=10_556,
        features=1433,
        classes=7,
        task=CLASSES,
        licence=MIT,
        form="planetoid",
        files=planetoid("cora"),
    ),
    "citeseer": Facts(
        nodes=3_327,
        edges=9_228,
        features=3703,
        classes=6,
        task=CLASSES,
        licence=MIT,
        form="planetoid",
        files=planetoid("citeseer"),
    ),
    "pubmed": Facts(
        nodes=19_717,
        edges=88_651,
        features=500,
        classes=3,
        task=CLASSES,
        licence=MIT,
        form="planetoid",
        files=planetoid("pubmed"),
    ),
    "amazon_photo": Facts(
        nodes=7_487,
        edges=238_086,
        features=745,
        classes=8,
        task=CLASSES,
        licence=MIT,
        form="attributed",
        files=(RawFile(f"{PITFALLS}/amazon_electronics_photo.npz"),),
    ),
    "amazon_computers": Facts(
        nodes=13_381,
        edges=491_556,
        features=767,
        classes=10,
        task=CLASSES,
        licence=MIT,
        form="attributed",
        files=(RawFile(f"{PITFALLS}/amazon_electronics_computers.npz"),),
    ),
    "coauthor_cs": Facts(
        nodes=18_333,
        edges=163_788,
        features=6805,
        classes=15,
        task=CLASSES,
        licence=MIT,
        form="attributed",
        files=(RawFile(f"{PITFALLS}/ms_academic_cs.npz"),),
    ),
    "mol_tox21": Facts(
        nodes=145_459,
        edges=302_190,
        features=34,
        classes=10,
        task=CLASSES,
        licence=MIT,
    ),
    "mol_hiv": Facts(
        nodes=1_049_163,
        edges=2_259_376,
        features=38,
        classes=14,
        task=CLASSES,
        licence=MIT,
    ),
    "tu_mutag": Facts(
        nodes=3_559,
        edges=10_813,
        features=7,
        classes=2,
        task=WHOLE,
        licence=MIT,
    ),
    "tu_proteins": Facts(
        nodes=44_584,
        edges=205_559,
        features=3,
        classes=2,
        task=WHOLE,
        licence=MIT,
    ),
    "traffic_chicago_regional": Facts(
        nodes=12_982,
        edges=39_018,
        features=3,
        classes=0,
        task=REGRESSION,
        licence="academic use",
    ),
    "bitcoin_otc": Facts(
        nodes=5_881,
        edges=35_592,
        features=3,
        classes=0,
        task=REGRESSION,
        form="ratings",
        files=(RawFile(f"{SNAP}/soc-sign-bitcoinotc.csv.gz"),),
    ),
    "fb15k_237": Facts(
        nodes=14_541,
        edges=310_116,
        features=32,
        classes=0,
        task=LINKS,
        licence=MIT,
        form="triples",
        files=(
            RawFile(
                address=f"{CONVE}/FB15k-237.tar.gz",
                n_bytes=3_678_603,
                sha256="311df7930f842a02979eaa7a802484a6afe62303c07f915f1e6edbc30cbe05e8",
            ),
        ),
    ),
    "wn18rr": Facts(
        nodes=40_943,
        edges=93_003,
        features=32,
        classes=0,
        task=LINKS,
        licence=MIT,
        form="triples",
        files=(
            RawFile(
                address=f"{CONVE}/WN18RR.tar.gz",
                n_bytes=892_861,
                sha256="1eb9152f804c140d163462c0d49f65e5a0b30ab5fbb375c5e3353c11a6249060",
            ),
        ),
    ),
    "hetero_acm": Facts(
        nodes=11_246,
        edges=34_852,
        features=3864,
        classes=3,
        task=CLASSES,
    ),
    "hetero_movielens100k": Facts(
        nodes=2_677,
        edges=469_450,
        features=2677,
        classes=0,
        task=LINKS,
    ),
    "graphchallenge_sbm_50k": Facts(
        nodes=50_000,
        edges=1_018_039,
        features=0,
        classes=44,
        task=CLASSES,
        licence=MIT,
    ),
    "biogrid_all": Facts(
        nodes=75_550,
        edges=2_633_686,
        features=0,
        classes=0,
        task=TOPOLOGY,
    ),
    "cnr_2000": Facts(
        nodes=325_557,
        edges=3_216_152,
        features=0,
        classes=0,
        task=TOPOLOGY,
        licence="LGPL-2.1",
    ),
    "road_usa_bay": Facts(
        nodes=321_270,
        edges=794_830,
        features=0,
        classes=0,
        task=TOPOLOGY,
        licence="public domain",
    ),
    "facebook100": Facts(
        nodes=870_056,
        edges=66_596_166,
        features=73,
        classes=6,
        task=CLASSES,
    ),
}
