/* Loops over nested intervals that NumPy has no function for. `nesting.py` defines the results, and
   computes them without this library. */

#include <stdint.h>

const char *stepscope_source_digest(void) { return SOURCE_DIGEST; }

/* An empty interval contains none: calls that took no time follow each other. */
static int64_t reach_of(const int64_t *start, const int64_t *end, int64_t at) {
    return end[at] > start[at] ? end[at] : start[at] - 1;
}

/* See `nesting.nest`: `parent`, `depth` and `excess` are written. An interval that was passed on the
   way up is on no later way: a later one starts after its end, or ends after it, too. */
void stepscope_nest(const int64_t *start, const int64_t *end, int64_t count, int64_t tolerance,
                    int64_t *parent, int64_t *depth, int64_t *excess) {
    for (int64_t at = 0; at < count; at++) {
        int64_t candidate = at - 1, over = 0;
        while (candidate >= 0) {
            int64_t reach = reach_of(start, end, candidate);
            if (reach >= end[at]) break;
            if (reach > start[at]) {
                if (!over) over = end[at] - reach;
                if (reach + tolerance >= end[at]) break;
            }
            candidate = parent[candidate];
        }
        parent[at] = candidate;
        depth[at] = candidate < 0 ? 0 : depth[candidate] + 1;
        excess[at] = over;
    }
}

/* Add to each value those of all intervals below it. A parent is before its children. */
void stepscope_add_up(const int64_t *parent, int64_t count, int64_t *total) {
    for (int64_t at = count - 1; at >= 0; at--)
        if (parent[at] >= 0) total[parent[at]] += total[at];
}
