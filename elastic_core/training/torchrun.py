"""torchrun whose stores listen on loopback: `python -m elastic_core.training.torchrun`, with torchrun's arguments."""

from elastic_core import private_stores

private_stores.install()

from torch.distributed.run import main  # noqa: E402  what it imports takes the store by name

if __name__ == "__main__":
    main()
