# L-BFGS on many small problems at once; a part of _loops.pyx


cdef class Searches:
    """n minimizations over k variables from start (n, k) in units (n, k): mpigp.gp.batch_lbfgs has the algorithm."""

    cdef searches_t s
    cdef object memory
    cdef double[::1] space

    def __init__(self, const double[:, ::1] start not None, const double[:, ::1] units):
        cdef double[::1] records
        self.s.n, self.s.k = start.shape[0], start.shape[1]
        check_matrix("units", units, self.s.n, self.s.k)
        self.memory = np.empty(self.s.n * search_record(self.s.k) + 8)
        records = self.memory[-self.memory.ctypes.data // 8 % 8 :]
        self.s.records = &records[0]
        self.space = np.empty(search_places(self.s.k) + 8)
        with nogil:
            loops.search_begin(&self.s, &start[0, 0], &units[0, 0])

    def trials(self, const int64_t[::1] numbers not None):
        """Return the points (a, k) at which the problems of these numbers (a,) are to be evaluated next."""
        return self.read(numbers, True)

    def points(self, const int64_t[::1] numbers not None):
        """Return the best points (a, k) so far of the problems of these numbers (a,)."""
        return self.read(numbers, False)

    cdef read(self, const int64_t[::1] numbers, bint trial):
        check_indices("numbers", numbers, self.s.n)
        result = np.empty((numbers.shape[0], self.s.k))
        cdef double[:, ::1] out = result
        with nogil:
            loops.search_points(&self.s, &numbers[0], numbers.shape[0], trial, &out[0, 0])
        return result

    def values(self):
        """Return the values (n,) at the best points so far."""
        result = np.empty(self.s.n)
        cdef double[::1] out = result
        cdef int64_t i
        for i in range(self.s.n):
            out[i] = self.s.records[i * search_record(self.s.k)]
        return result

    def advance(self, const int64_t[::1] numbers not None, const double[::1] values, const double[:, ::1] gradients,
                double tolerance):
        """Take the values (a,) and gradients (a, k) at the trials of these problems, and return the numbers of those that
        have not converged."""
        result = np.array(numbers)
        cdef int64_t[::1] active = result
        cdef int64_t left
        cdef double *scaled = <double *>((<size_t>&self.space[0] + 63) // 64 * 64)
        check_indices("numbers", numbers, self.s.n)
        check_vector("values", values, active.shape[0])
        check_matrix("gradients", gradients, active.shape[0], self.s.k)
        with nogil:
            left = loops.search_advance(&self.s, &active[0], active.shape[0], &values[0], &gradients[0, 0], tolerance,
                                        scaled)
        return result[:left]
