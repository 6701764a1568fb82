"""The published figures that the page answers, and a check that it answers all of them.

    python bench/papers/rows.py

Prints what docs/papers.md leaves without an answer; the exit code is 1 if there is any.

A line of a table is the key of a figure, what it is, and its value. The scripts of the papers take
their rows from here by key. The check reads the page alone: under the heading of the system, a row
must have the value in its second column, and a figure of our own or the reason for none in its
third.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "papers.md"

# speed-ups of 512 and 1,024 workers are those of a step, over 256
GRAPHTHETA = """
cora-gcn | Cora, GCN, global; DGL; TF-GCN; DGL's README | 82.70; 80.50; 81.50; 81.0
cora-gcn-mini | Cora, GCN, mini | 82.40
cora-gcn-cluster | Cora, GCN, clusters; Cluster-GCN | 70.47
citeseer-gcn | Citeseer, GCN, global; DGL; TF-GCN; DGL's README | 71.90; 70.36; 70.30; 70.7
citeseer-gcn-mini | Citeseer, GCN, mini | 71.90
citeseer-gcn-cluster | Citeseer, GCN, clusters; Cluster-GCN | 59.43
pubmed-gcn | Pubmed, GCN; DGL; TF-GCN; DGL's README | 80.00 / 79.50; 79.06; 79.00; 79.2
pubmed-cluster | Pubmed, GCN; Cluster-GCN | 75.14
cora-gat | Cora, GAT; DGL twice; GAT's paper | 81.1 / 80.0; 81.4; 82.1; 83.0
citeseer-gat | Citeseer, GAT; DGL twice; GAT's paper | 71.2 / 70.8; 72.6; 71.0; 72.5
pubmed-gat | Pubmed, GAT; DGL twice; GAT's paper | 78.7 / 78.6; 78.0; 78.0; 79.0
cora-sage | Cora, SAGE; DGL's README | 83.3
citeseer-sage | Citeseer, SAGE; DGL's README | 71.1
pubmed-sage | Pubmed, SAGE; DGL's README | 78.3
ppi-gat | PPI, GAT; DGL's README, F1 | .9744
reddit | Reddit: global / mini / cluster | 96.44 / 95.84 / 95.60
reddit-others | Reddit: VR-GCN / Cluster-GCN / SAGE / SAINT | 62.48 / 96.23 / 96.20 / 96.44
amazon | Amazon: global / mini / cluster | 89.77 / 87.99 / 88.34
amazon-others | Amazon: VR-GCN / Cluster-GCN / SAGE / SAINT | 71.77 / 75.66 / 77.13 / 76.38
alipay-f1 | Alipay, 1,024 workers: F1 | 12.18 / 13.33 / 13.51
alipay-auc | Alipay: AUC | 87.64 / 88.12 / 88.36
alipay-hours | Alipay: hours | 30 / 36 / 26
alipay-memory | Alipay: peak GB of a worker | 12 / 5 / 6
scaling-mini | mini | 1.71 / 2.23
scaling-cluster | cluster | 1.52 / 1.80
scaling-mini-parts | mini, forward; backward | 1.83 / 1.84; 1.77 / 2.85
scaling-cluster-parts | cluster, forward; backward | 1.70 / 1.75; 1.74 / 2.45
preparation | preparation | 6.53 %
layer 0 forward | layer 0 forward | 38.38 %
layer 1 forward | layer 1 forward | 11.02 %
layer 0 backward | layer 0 backward | 37.90 %
layer 1 backward | layer 1 backward | 6.05 %
update | update | 0.13 %
partition-global | global, mini: vertex-cut | faster
partition-cluster | cluster: vertex-cut | slower
mirrors | Amazon: peak memory of 1D edges against vertex-cut | about -20 %
distdgl-2 | 2 layers | 1.09x
distdgl-3 | 3 layers | 1.53x
distdgl-4 | 4 layers | 2.02x
distdgl-5 | 5 layers | 1.81x
distdgl-seconds-2 | DistDGL, 2 layers: seconds of a step with 8 / 128 trainers | 22.0 / 41.3
distdgl-seconds-3 | 3 layers, 8 / 64; socket error with 128 | 55.8 / 105.3
distdgl-seconds-4 | 4 layers, 8 / 32; socket error with 64 | 88.9 / 124.9
distdgl-seconds-5 | 5 layers, 8 / 32; socket error with 64 | 123.5 / 175.0
distdgl-threads | DistDGL: best number of threads of 64, 2 to 5 layers | 44 / 48 / 36 / 58
"""
BATCHGNN = """
vectors-arxiv | arxiv on 4; R-MAT 2^18 on 4 | 3.9M / 0.5M / 0.8M
vectors-products | products on 8; R-MAT 2^18 on 8 | 68.0M / 12.2M / 15.2M
vectors-papers | papers100M on 32; R-MAT 2^16 on 32 | 463.6M / 183.6M / 127.4M
vectors-metis | papers100M on 32, DGL with METIS against without | 249.2M of 463.6M
vectors-ldbc | LDBC1000, 1 / 72 / all; R-MAT 2^15, 1 / 4 / 16 | 596M / 464M / 363M
epoch-arxiv | arxiv on 4 machines | 1.87 / 1.19 / 1.03
epoch-products | products on 8 | 11.88 / 3.12 / 2.74
epoch-papers | papers100M on 32 | 41.96 / 6.64 / 5.73
epoch-metis | papers100M on 32, DGL with METIS | 35.02
epoch-p3 | papers100M on 16, SAGE of 2 layers, 25 and 10 neighbours, 32 wide | 2.8 s
epoch-distdglv2 | papers100M on 64, DistDGLv2, 3 layers | 4.5 s
imbalance-dgl | papers100M on 32, DGL; R-MAT 2^18 on 2 | .63 of .78 s
imbalance-batchgnn | papers100M on 32, BatchGNN; R-MAT 2^18 on 16 | .03 of .13 s
totals-arxiv | arxiv on 1 / 2 / 4 | .44 / .24 / .15
totals-products | products on 1 / 2 / 4 / 8 | 22.7 / 11.2 / 5.9 / 3.5
totals-papers | papers100M on 2 / 4 / 8 / 16 / 32 | 320.7 / 176 / 88 / 45.7 / 23.2
"""
DISTGNN = """
hits | papers100M on 64 | 71 / 47 / 37
accuracy-products | products, SAGE / GAT | 78.2 / 78.5
accuracy-papers | papers100M, SAGE / GAT | 65 / 65
epochs-one | one socket: SAGE on products / papers100M; GAT | 7 / 9; 6 / 6
epochs-sage | SAGE: products on 16 / papers100M on 64 | 30 / 15
epochs-gat | GAT: products on 32 / papers100M on 64 | 20 / 26
epoch | papers100M on 64: SAGE / GAT | 2.0 / 4.9 s
scaling | from 4 to 64 sockets: SAGE / GAT | 10x / 17.2x
distdgl | against DistDGL, 64 sockets / 2 workers | 5.2x
imbalance | largest imbalance, products / papers100M; facebook100 on 8 | 12 % / 8.7 %
efficiency | efficiency FWD / ARed, SAGE; GAT | 40 / 69 %; 74 / 85 %
"""
BGL = """
features | share of features in the data of a mini-batch | 97 %
fifo-order | example: hits of FIFO, random order, then proximity order | 8, 14
static | products and papers100M: FIFO with order against static | +20 %
order-accuracy | final accuracy with proximity order | same
requests | cross-partition sampling requests | -25 .. -44 %
sampling | sampling time | -10 .. -20 %
systems | PaGraph / PyG / DGL / Euler, mean | 1.91 / 3.02 / 7.04 / 20.68x
feature-time | feature time against Euler / DGL / PaGraph | -98 / -88 / -57 %
scaling | scaling, of linear | 76 %
pipeline | GPU cluster, isolated stages | 2.7x
"""
LABOR = """
nodes-neighbour | Reddit: neighbour | 167 / 68.3 / 10.1
nodes-LABOR-0 | Reddit: LABOR-0 | 36 / 17.8 / 6.8
nodes-LABOR-1 | Reddit: LABOR-1 | 27 / 14.4 / 6.1
nodes-LABOR-* | Reddit: LABOR-* | 24 / 13.7 / 6.0
edges-neighbour | Reddit: neighbour | 682 / 100 / 9.7
edges-LABOR-0 | Reddit: LABOR-0 | 177 / 67 / 9.6
edges-LABOR-1 | Reddit: LABOR-1 | 261 / 116 / 16.7
edges-LABOR-* | Reddit: LABOR-* | 1070 / 435 / 26.9
dependent-hits | example, kappa 1 / 32: misses | 62 / 22 %
dependent-nodes | example, LABOR-0, kappa 1 / 32 | 250K / 247K
dependent-layers | example, draws for each / all hops | 250K / 191K
dependent-neighbour | example, neighbour sampling | 518K
dependent-accuracy | example, accuracy, kappa 32 | same
cooperative-labor | papers100M, GCN, LABOR-0 on 4 / 8 / 16 | 14.5 / 25.3 / 64.2 %
cooperative-ns | papers100M, GCN, NS | 21.4 / 36.4 / 61.1 %
cooperative-mag-labor | mag240M, R-GCN, LABOR-0 | 17.7 / 31.2 / 63.0 %
cooperative-mag-ns | mag240M, R-GCN, NS | 12.1 / 21.7 / 47.3 %
accuracy-reddit | Reddit | 96.21 / 96.20 / 96.23 / 96.23 / 96.25 / 96.24
accuracy-products | products | 78.44 / 78.59 / 78.59 / 78.47 / 78.76 / 78.48
accuracy-yelp | Yelp | 61.55 / 61.89 / 61.57 / 61.71 / 61.55 / 61.50
accuracy-flickr | Flickr | 51.52 / 50.79 / 51.67 / 51.66 / 51.65 / 51.70
"""
OTHERS = """
amazon_computers | Amazon Computers: GCN / SAGE | 82.6 +- 2.4 / 82.4 +- 1.8
amazon_photo | Amazon Photo: GCN / SAGE | 91.2 +- 1.2 / 91.4 +- 1.3
coauthor_cs | Coauthor CS: GCN / SAGE | 91.1 +- 0.5 / 91.3 +- 2.8
coauthor_physics | Coauthor Physics: GCN / SAGE | 92.8 +- 1.0 / 93.0 +- 0.8
saint-ppi | PPI | .960 / .981 / .981
saint-flickr | Flickr | .507 / .510 / .511
saint-reddit | Reddit | .962 / .966 / .966
saint-yelp | Yelp | .641 / .653 / .653
saint-amazon | Amazon | .782 / .807 / .815
cluster-ppi | PPI, 5 layers, 2,048 wide | 99.36
cluster-reddit | Reddit, 4 layers, 512 wide | 96.60
bns | BNS-GCN, Reddit, a tenth of the halo | 97.21
pipegcn | PipeGCN, Reddit | 97.10
proteins | GIPA, ogbn-proteins: first / wide and deep, ROC-AUC | .8700 / .8917
dgl-products | DGL, products: NS / LABOR | .7632 / .797
arxiv | OGB, arxiv: GCN / SAGE | 71.74 / 71.49
products | OGB, products: five, see below | 75.64 / 78.50 / 78.70 / 78.97 / 79.08
citation2 | DGL, citation2 after 10 epochs: MRR | .7386
fb15k | Marius, FB15k-237, 10 epochs: MRR | about .25
"""


class Published(NamedTuple):
    """A published figure.

    Attributes:
        key: By which scripts take it.
        item: What it is.
        figure: Its value.
    """

    key: str
    item: str
    figure: str


def _table(text: str) -> dict[str, Published]:
    rows = [
        Published(*(cell.strip() for cell in line.split(" | ")))
        for line in text.strip().splitlines()
    ]
    return {row.key: row for row in rows}


# by the headings of the page
SYSTEMS = {
    "GraphTheta": _table(GRAPHTHETA),
    "BatchGNN": _table(BATCHGNN),
    "DistGNN-MB": _table(DISTGNN),
    "BGL": _table(BGL),
    "LABOR, cooperative and dependent minibatching": _table(LABOR),
    "Other systems": _table(OTHERS),
}


def unanswered(page: str) -> list[str]:
    """What the page has no answer to, as "system: key".

    Args:
        page: Its text.
    """
    # text below each heading, up to the next one
    parts = {part.partition("\n")[0]: part for part in page.split("\n## ")}
    missing = []
    for system, rows in SYSTEMS.items():
        cells = [
            [cell.strip() for cell in line.strip("|").split("|")]
            for line in parts.get(system, "").splitlines()
            if line[:1] == "|"
        ]
        answered = {line[1] for line in cells if len(line) == 3 and line[2]}
        missing += [f"{system}: {key}" for key, row in rows.items() if row.figure not in answered]
    return missing


def main() -> int:
    missing = unanswered(PAGE.read_text(encoding="utf-8"))
    print(
        "\n".join(missing)
        if missing
        else f"all {sum(map(len, SYSTEMS.values()))} published figures are answered"
    )
    return bool(missing)


if __name__ == "__main__":
    sys.exit(main())
