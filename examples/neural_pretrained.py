"""
A pretrained backbone
=====================

Weights of a network that learned something else come from a local file of safetensors, which runs no code; bags then
teach it a new task: which digits are odd, from 40 bags of 8 images. Training begins at these weights; beside it stands
the same network that begins anew. On images as small and plain as these digits, that does as well.
"""

import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from sklearn.datasets import load_digits
from torch import nn

import bagwise as bw


def backbone() -> nn.Module:
    """Features of 8 × 8 images."""
    layers = [nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, 64), nn.ReLU())


def pretrain(images: torch.Tensor, digits: torch.Tensor, file: Path) -> None:
    """What others did before: the weights of a backbone that was trained on labels of other images."""
    torch.manual_seed(0)
    features = backbone()
    network = nn.Sequential(features, nn.Linear(64, 10))
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(images), digits).backward()
        optimizer.step()
    save_file(features.state_dict(), file)


def main() -> tuple[float, float]:
    """Accuracy on single images with the weights of the file, and with weights that start anew."""
    images, digits = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    before, train, test = np.split(np.random.default_rng(0).permutation(len(images)), [600, 920])
    file = Path(tempfile.mkdtemp()) / "backbone.safetensors"
    pretrain(torch.from_numpy(images[before]), torch.from_numpy(digits[before]), file)

    odd = (digits % 2).astype(float)  # the new task, known for bags of 8 images only
    ids = bw.random_bags(len(train), size=8, random_state=0)
    accuracy = []
    for pretrained in (True, False):
        torch.manual_seed(1)
        features = backbone()
        if pretrained:
            features.load_state_dict(load_file(file))
        module = nn.Sequential(features, nn.LayerNorm(64), nn.Linear(64, 1))
        model = bw.BagNeuralClassifier(
            module=module, learning_rate=(3e-4, 1e-3, 3e-3), batch_rows=128, max_epochs=60, cv=3, random_state=0
        )
        model.fit(images[train], bw.aggregate(odd[train], ids), bags=ids)
        accuracy.append(float(np.mean(model.predict(images[test]) == odd[test])))
    print(f"accuracy on single images: {accuracy[0]:.3f} with the weights of the file, {accuracy[1]:.3f} from scratch")
    return accuracy[0], accuracy[1]


if __name__ == "__main__":
    main()
