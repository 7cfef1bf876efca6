/* Passes over a directed graph with weighted edges that NumPy has no function for. `paths.py` defines
   the results, and computes them without this library. */

#include <stdint.h>

const char *stepscope_source_digest(void) { return SOURCE_DIGEST; }

/* Order points so that each comes after the sources of its edges; points that are ready at once come
   in the order of their numbers in `ready`, a queue. Edges are grouped by source: those of point p are
   first[p] … first[p + 1] - 1. `waiting` holds the number of edges into each point, and is consumed.
   Returns the number of ordered points: fewer than all if there is a cycle. */
int64_t stepscope_order_points(int64_t point_count, const int64_t *first, const int64_t *target,
                               int64_t *waiting, int64_t *order) {
    int64_t count = 0;
    for (int64_t point = 0; point < point_count; point++)
        if (!waiting[point]) order[count++] = point;
    for (int64_t at = 0; at < count; at++)
        for (int64_t edge = first[order[at]]; edge < first[order[at] + 1]; edge++)
            if (!--waiting[target[edge]]) order[count++] = target[edge];
    return count;
}

/* Edges are in topological order of their targets. A point without an edge keeps its time. */
void stepscope_schedule(int64_t edge_count, const int64_t *source, const int64_t *target,
                        const int64_t *weight, int64_t *time, int64_t *binding) {
    for (int64_t edge = 0; edge < edge_count; edge++) {
        int64_t end = time[source[edge]] + weight[edge], point = target[edge];
        if (binding[point] < 0 || end > time[point]) {
            time[point] = end;
            binding[point] = edge;
        }
    }
}

/* The latest time of each point that delays no target; `latest` holds the bounds of points. */
void stepscope_latest(int64_t edge_count, const int64_t *source, const int64_t *target,
                      const int64_t *weight, int64_t *latest) {
    for (int64_t edge = edge_count - 1; edge >= 0; edge--) {
        int64_t bound = latest[target[edge]] - weight[edge];
        if (bound < latest[source[edge]]) latest[source[edge]] = bound;
    }
}

/* The edges of the longest path to a point, backwards. */
int64_t stepscope_trace_path(int64_t point, const int64_t *source, const int64_t *binding,
                             int64_t *path) {
    int64_t count = 0;
    for (int64_t edge = binding[point]; edge >= 0; edge = binding[source[edge]])
        path[count++] = edge;
    return count;
}
