import graphtheta as gt


def train(
    model,
    graph,
    epochs,
    fanout=(10, 5),
    batch_size=32,
    order="random",
):
    trainer = gt.Trainer(
        model,
        graph,
        strategy="mini",
        fanout=fanout,
        batch_size=batch_size,
        order=order,
        epochs=epochs,
        lr=0.01,
        weight_decay=5e-4,
    )
    return [row["loss"] for row in trainer.fit().history]
