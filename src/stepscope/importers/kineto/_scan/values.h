/* Values of JSON: their extent, their type, and exact numbers. Every read is within the text. */

#ifndef STEPSCOPE_VALUES_H
#define STEPSCOPE_VALUES_H

#include "texts.h"

enum { MAX_DEPTH = 32 };
enum { TEXT, WHOLE, DECIMAL, OTHER_NUMBER, ARRAY, OBJECT, NOTHING, TRUTH }; /* types of values */
#define MAX_MICROSECONDS (((int64_t)1 << 62) / 1000)
#define INVALID_TIME INT64_MIN
#define IS_LITTLE_ENDIAN (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)

typedef struct {
    int32_t type;
    bool is_odd; /* it contains a string with escapes or other than ASCII characters */
    Span text;   /* a string without its quotes */
    int64_t whole;     /* the number without its fraction */
    int32_t decimals;  /* digits of the fraction */
} Value;

static bool is_blank(uint8_t c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
static bool is_digit(uint8_t c) { return c >= '0' && c <= '9'; }

static const uint8_t *skip_blanks(const uint8_t *at, const uint8_t *end) {
    while (at < end && is_blank(*at)) at++;
    return at;
}

/* Mark bytes of a word that end a plain string: quotes, backslashes, control and other than ASCII
   characters; borrows between bytes can only mark too many, after a byte that is marked rightly. */
static uint64_t marks_of(uint64_t word) {
    const uint64_t ones = 0x0101010101010101u, high = 0x8080808080808080u;
    uint64_t quote = word ^ (ones * '"'), backslash = word ^ (ones * '\\');
    uint64_t marks = ((quote - ones) & ~quote) | ((backslash - ones) & ~backslash);
    return (marks | ((word - ones * 0x20) & ~word) | word) & high;
}

/* Return how many bytes of a word come before the first mark, if the machine tells quickly. */
static int bytes_before(uint64_t marks) {
    return IS_LITTLE_ENDIAN ? __builtin_ctzll(marks) / 8 : 0;
}

/* Scan a string from after its opening quote to its closing one; NULL without one. */
ALWAYS_INLINE const uint8_t *scan_string(const uint8_t *at, const uint8_t *end, bool *is_odd) {
    for (;;) {
        uint64_t word;
        while (end - at >= 8) {
            memcpy(&word, at, 8);
            uint64_t marks = marks_of(word);
            if (marks) {
                at += bytes_before(marks);
                break;
            }
            at += 8;
        }
        /* At most eight more bytes one by one, unless the string is odd. */
        for (; at < end; at++) {
            if (*at == '"') return at;
            if (*at == '\\') {
                *is_odd = true;
                if (++at == end) return NULL;
            } else if (*at < 0x20 || *at >= 0x80) {
                *is_odd = true;
            }
        }
        return NULL;
    }
}

/* Scan digits, and append them to a number, which may overflow. */
static const uint8_t *scan_digits(const uint8_t *at, const uint8_t *end, uint64_t *number) {
    static const uint32_t powers[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};
    uint64_t word;
    while (IS_LITTLE_ENDIAN && end - at >= 8) {
        memcpy(&word, at, 8);
        word ^= 0x3030303030303030u;
        /* Carries between bytes can only mark too many, after a byte that is marked rightly. */
        uint64_t marks = ((word + 0x7676767676767676u) | word) & 0x8080808080808080u;
        int count = marks ? bytes_before(marks) : 8;
        if (!count) return at;
        /* Digits to the upper bytes, zeros before them; then pairs, fours and eights are joined:
           https://lemire.me/blog/2022/01/21/swar-explained-parsing-eight-digits/ */
        word <<= 64 - 8 * count;
        word = word * 10 + (word >> 8);
        word = ((word & 0x000000FF000000FFu) * 0x000F424000000064u +
                (word >> 16 & 0x000000FF000000FFu) * 0x0000271000000001u) >> 32;
        *number = *number * powers[count] + word;
        at += count;
        if (count < 8) return at;
    }
    for (; at < end && is_digit(*at); at++) *number = 10 * *number + (uint64_t)(*at - '0');
    return at;
}

/* Scan a number as JSON defines it; NULL if it is none. */
static const uint8_t *scan_number(const uint8_t *at, const uint8_t *end, Value *value) {
    const uint8_t *first = at;
    bool negative = *at == '-';
    if (negative) at++;
    const uint8_t *digits = at;
    uint64_t whole = 0;
    at = scan_digits(at, end, &whole);
    int64_t count = at - digits;
    if (!count || (count > 1 && *digits == '0')) return NULL;
    /* -0 is written as 0 by Python, and more than 18 digits may not fit. */
    value->type = count <= 18 && !(negative && !whole) ? WHOLE : OTHER_NUMBER;
    value->whole = (int64_t)(negative ? -whole : whole);
    if (at < end && *at == '.') {
        const uint8_t *fraction = ++at;
        while (at < end && is_digit(*at)) at++;
        if (at == fraction) return NULL;
        value->decimals = (int32_t)(at - fraction);
        value->type = count <= 16 ? DECIMAL : OTHER_NUMBER;
    }
    if (at < end && (*at == 'e' || *at == 'E')) {
        at++;
        if (at < end && (*at == '+' || *at == '-')) at++;
        const uint8_t *exponent = at;
        while (at < end && is_digit(*at)) at++;
        if (at == exponent) return NULL;
        value->type = OTHER_NUMBER;
    }
    value->text = (Span){first, at};
    return at;
}

static const uint8_t *scan_nested(const uint8_t *at, const uint8_t *end, int depth, Value *value);

/* Scan any value; NULL if it is not JSON, or nested too deeply. */
static inline const uint8_t *scan_value(const uint8_t *at, const uint8_t *end, int depth,
                                        Value *value) {
    if (at == end) return NULL;
    if (*at == '-' || is_digit(*at)) return scan_number(at, end, value);
    if (*at != '"') return scan_nested(at, end, depth, value);
    const uint8_t *first = at + 1;
    at = scan_string(first, end, &value->is_odd);
    if (!at) return NULL;
    value->type = TEXT;
    value->text = (Span){first, at};
    return at + 1;
}

/* Scan an array, an object or a word. */
static const uint8_t *scan_nested(const uint8_t *at, const uint8_t *end, int depth, Value *value) {
    const uint8_t *first = at;
    switch (*at) {
    case '{':
    case '[': {
        if (depth == MAX_DEPTH) return NULL;
        bool is_object = *at == '{';
        uint8_t closing = is_object ? '}' : ']';
        at = skip_blanks(at + 1, end);
        if (at < end && *at != closing) {
            for (;;) {
                Value inner = {.is_odd = false};
                if (is_object) {
                    if (at == end || *at != '"') return NULL;
                    at = scan_string(at + 1, end, &inner.is_odd);
                    if (!at) return NULL;
                    at = skip_blanks(at + 1, end);
                    if (at == end || *at != ':') return NULL;
                    at = skip_blanks(at + 1, end);
                }
                at = scan_value(at, end, depth + 1, &inner);
                if (!at) return NULL;
                value->is_odd |= inner.is_odd;
                at = skip_blanks(at, end);
                if (at == end || *at != ',') break;
                at = skip_blanks(at + 1, end);
            }
        }
        if (at == end || *at != closing) return NULL;
        value->type = is_object ? OBJECT : ARRAY;
        break;
    }
    case 't':
    case 'f':
    case 'n': {
        const char *word = *at == 't' ? "true" : *at == 'f' ? "false" : "null";
        int64_t length = (int64_t)strlen(word);
        if (end - at < length || memcmp(at, word, (size_t)length) != 0) return NULL;
        at += length - 1;
        value->type = *first == 'n' ? NOTHING : TRUTH;
        break;
    }
    default:
        return NULL;
    }
    value->text = (Span){first, at + 1};
    return at + 1;
}

/* Convert decimal microseconds to nanoseconds, rounded half up in magnitude. */
static bool nanoseconds_of(const Value *value, int64_t *time) {
    *time = INVALID_TIME;
    if (value->type == NOTHING) return true;
    if (value->type != WHOLE && value->type != DECIMAL) return false;
    /* Later times are impossible: see `times.py`. */
    if (value->whole <= -MAX_MICROSECONDS || value->whole >= MAX_MICROSECONDS) return false;
    if (value->type == WHOLE) {
        *time = 1000 * value->whole;
        return true;
    }
    const uint8_t *end = value->text.end, *at = end - value->decimals;
    bool negative = *value->text.start == '-';
    int64_t result = negative ? -value->whole : value->whole;
    for (int digit = 0; digit < 3; digit++) result = 10 * result + (at < end ? *at++ - '0' : 0);
    if (at < end && *at >= '5') result++;
    *time = negative ? -result : result;
    return true;
}

/* Convert a number to the nearest double, exactly: both parts of the quotient are doubles. */
static bool double_of(const Value *value, double *result) {
    static const double powers[] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    if (value->type != WHOLE && value->type != DECIMAL) return false;
    int64_t digits = 0, decimals = 0, count = 0;
    bool negative = false, in_fraction = false;
    for (const uint8_t *at = value->text.start; at < value->text.end; at++) {
        if (*at == '-') {
            negative = true;
        } else if (*at == '.') {
            in_fraction = true;
        } else {
            if (++count > 15) return false;
            digits = 10 * digits + (*at - '0');
            decimals += in_fraction;
        }
    }
    double magnitude = (double)digits / powers[decimals];
    *result = negative ? -magnitude : magnitude;
    return true;
}

#endif
