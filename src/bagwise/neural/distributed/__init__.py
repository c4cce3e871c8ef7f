"""One network trained on blocks of bags, by one process or by several that torchrun starts."""
