"""Checks of shapes where Python calls C: a ValueError says which argument has which shape, and which was expected."""

from libc.stdint cimport int64_t


cdef inline int expect(str name, tuple shape, tuple expected) except -1:
    if shape != expected:
        raise ValueError(f"{name} has shape {shape}, expected {expected}")
    return 0


cdef inline int check_vector(str name, const double[:] array, Py_ssize_t length) except -1:
    if array is None:
        raise ValueError(f"{name} is None, expected shape ({length},)")
    return 0 if array.shape[0] == length else expect(name, (array.shape[0],), (length,))


cdef inline int check_matrix(str name, const double[:, :] array, Py_ssize_t rows, Py_ssize_t columns) except -1:
    if array is None:
        raise ValueError(f"{name} is None, expected shape ({rows}, {columns})")
    if array.shape[0] == rows and array.shape[1] == columns:
        return 0
    return expect(name, (array.shape[0], array.shape[1]), (rows, columns))


cdef inline int check_square(str name, const double[:, :] array) except -1:
    """Return m of a matrix (m, m), m ≥ 1."""
    if array is None or array.shape[0] < 1:
        raise ValueError(f"{name} is empty, expected a square matrix")
    check_matrix(name, array, array.shape[0], array.shape[0])
    return array.shape[0]


cdef inline int check_indices(str name, const int64_t[:] array, int64_t end) except -1:
    cdef int64_t i
    for i in range(array.shape[0]):
        if not 0 <= array[i] < end:
            raise ValueError(f"{name} holds {array[i]}, expected numbers from 0 to {end - 1}")
    return 0
