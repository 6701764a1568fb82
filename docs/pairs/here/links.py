import graphtheta as gt


def trainer_of(graph, epochs):
    """Holds out links, which carry no messages."""
    return gt.Trainer(
        "sage",
        graph,
        task="link",
        decoder="dot",
        hidden=16,
        dropout=0,
        lr=0.01,
        weight_decay=0,
        epochs=epochs,
    )


def scores(trainer, pairs):
    return trainer.predict_links(*pairs)
