/* Reductions of single-precision numbers in host memory, accumulated in double precision, in one
 * pass over memory: a block stays in the first-level cache between its loops. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__)
/* The processor decides when the library is loaded. */
#define FOR_EACH_PROCESSOR __attribute__((target_clones("avx2", "default")))
#else
#define FOR_EACH_PROCESSOR
#endif

enum {
    BLOCK = 4096,
    LANES = 8, /* independent sums, which a compiler turns into vectors */
    POWER_BINS = 512,
    TABLES = 4, /* successive elements often have the same bin: they count in different tables */
};
#define EXPONENT 0x7f800000u

/* As `_Totals` in __init__.py. All but the counts and `change_square_sum` are of finite elements. */
struct totals {
    int64_t finite_count, nan_count, zero_count;
    double low, high, sum, square_sum, abs_sum, product, change_square_sum;
};

const char *stepscope_source_digest(void) { return SOURCE_DIGEST; }

static uint32_t bits(float value) {
    uint32_t result;
    memcpy(&result, &value, sizeof result);
    return result;
}

/* Sums of every eighth element. */
struct lanes {
    double sum[LANES], square[LANES], absolute[LANES];
    float low[LANES], high[LANES];
    int32_t zeros[LANES];
    uint32_t is_odd[LANES]; /* an element is not finite */
};

static inline void add_element(struct lanes *lanes, int k, float value) {
    double wide = value;
    lanes->sum[k] += wide;
    lanes->square[k] += wide * wide;
    lanes->absolute[k] += fabs(wide);
    lanes->low[k] = value < lanes->low[k] ? value : lanes->low[k];
    lanes->high[k] = value > lanes->high[k] ? value : lanes->high[k];
    lanes->zeros[k] += value == 0;
    lanes->is_odd[k] |= (bits(value) & EXPONENT) == EXPONENT;
}

/* Adds a block; returns 0, with nothing added, if an element is not finite. */
FOR_EACH_PROCESSOR
static int add_finite(const float *values, int64_t count, struct totals *totals) {
    struct lanes lanes = {0};
    for (int k = 0; k < LANES; k++) {
        lanes.low[k] = INFINITY;
        lanes.high[k] = -INFINITY;
    }
    int64_t whole = count - count % LANES;
    for (int64_t i = 0; i < whole; i += LANES)
        for (int k = 0; k < LANES; k++) add_element(&lanes, k, values[i + k]);
    for (int64_t i = whole; i < count; i++) add_element(&lanes, (int)(i - whole), values[i]);
    for (int k = 0; k < LANES; k++)
        if (lanes.is_odd[k]) return 0;
    totals->finite_count += count;
    for (int k = 0; k < LANES; k++) {
        totals->sum += lanes.sum[k];
        totals->square_sum += lanes.square[k];
        totals->abs_sum += lanes.absolute[k];
        totals->low = fmin(totals->low, lanes.low[k]);
        totals->high = fmax(totals->high, lanes.high[k]);
        totals->zero_count += lanes.zeros[k];
    }
    return 1;
}

/* Adds a block with elements that are not finite. */
static void add_any(const float *values, int64_t count, struct totals *totals) {
    for (int64_t i = 0; i < count; i++) {
        if (isfinite(values[i]))
            add_finite(values + i, 1, totals);
        else
            totals->nan_count += isnan(values[i]) != 0;
    }
}

static inline void add_change(double *square, float value, float before) {
    double change = (double)value - (double)before;
    *square += change * change;
}

FOR_EACH_PROCESSOR
static double sum_square_changes(const float *values, const float *before, int64_t count) {
    double square[LANES] = {0}, sum = 0;
    int64_t whole = count - count % LANES;
    for (int64_t i = 0; i < whole; i += LANES)
        for (int k = 0; k < LANES; k++) add_change(&square[k], values[i + k], before[i + k]);
    for (int64_t i = whole; i < count; i++) add_change(&square[i - whole], values[i], before[i]);
    for (int k = 0; k < LANES; k++) sum += square[k];
    return sum;
}

static void count_powers(const float *values, int64_t count, int32_t tables[TABLES][POWER_BINS]) {
    int64_t i = 0;
    for (; i + TABLES <= count; i += TABLES)
        for (int k = 0; k < TABLES; k++) tables[k][bits(values[i + k]) >> 23]++;
    for (; i < count; i++) tables[0][bits(values[i]) >> 23]++;
}

/* Adds elements to totals. `before`: elements to which the change is measured, or null. `powers`:
 * counts by the upper nine bits, which are overwritten, or null. */
void stepscope_add(const float *values, const float *before, int64_t count, int has_product,
                   struct totals *totals, int32_t *powers) {
    int32_t tables[TABLES][POWER_BINS] = {{0}};
    for (int64_t first = 0; first < count; first += BLOCK) {
        int64_t block = count - first < BLOCK ? count - first : BLOCK;
        const float *part = values + first;
        if (!add_finite(part, block, totals)) add_any(part, block, totals);
        if (before) totals->change_square_sum += sum_square_changes(part, before + first, block);
        if (powers) count_powers(part, block, tables);
        if (has_product)
            for (int64_t i = 0; i < block; i++)
                if (isfinite(part[i])) totals->product *= part[i];
    }
    if (powers)
        for (int bin = 0; bin < POWER_BINS; bin++) {
            powers[bin] = 0;
            for (int k = 0; k < TABLES; k++) powers[bin] += tables[k][bin];
        }
}

/* Returns the sum of the squares of the deviations of finite elements from a number. */
double stepscope_sum_square_deviations(const float *values, int64_t count, double mean) {
    double sum = 0;
    for (int64_t first = 0; first < count; first += BLOCK) {
        int64_t end = count - first < BLOCK ? count : first + BLOCK;
        double part = 0;
        for (int64_t i = first; i < end; i++)
            if (isfinite(values[i])) part += (values[i] - mean) * (values[i] - mean);
        sum += part;
    }
    return sum;
}
