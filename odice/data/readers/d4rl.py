"""D4RL's HDF5 layout."""


def file_names(name: str) -> tuple[str, ...]:
    return (f"{name}.hdf5",)
