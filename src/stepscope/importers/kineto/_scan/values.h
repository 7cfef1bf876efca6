/* Values of JSON: their extent, their type, and exact numbers. Every read is within the text. */

#ifndef STEPSCOPE_VALUES_H
#define STEPSCOPE_VALUES_H

#include "texts.h"

enum { MAX_DEPTH = 32 };
enum { TEXT, WHOLE, DECIMAL, OTHER_NUMBER, ARRAY, OBJECT, NOTHING, TRUTH }; /* types of values */
#define MAX_MICROSECONDS (((int64_t)1 << 62) / 1000)
#define INVALID_TIME INT64_MIN

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

/* Scan a string from after its opening quote to its closing one; NULL without one. */
static const uint8_t *scan_string(const uint8_t *at, const uint8_t *end, bool *is_odd) {
    for (;;) {
        uint64_t word;
        while (end - at >= 8) {
            memcpy(&word, at, 8);
            if (marks_of(word)) break;
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

/* Scan a number as JSON defines it; NULL if it is none. */
static const uint8_t *scan_number(const uint8_t *at, const uint8_t *end, Value *value) {
    const uint8_t *first = at;
    bool negative = *at == '-';
    if (negative) at++;
    const uint8_t *digits = at;
    uint64_t whole = 0;
    for (; at < end && is_digit(*at); at++)
        if (at - digits < 18) whole = 10 * whole + (uint64_t)(*at - '0');
    int64_t count = at - digits;
    if (!count || (count > 1 && *digits == '0')) return NULL;
    /* -0 is written as 0 by Python, and more than 18 digits may not fit. */
    value->type = count <= 18 && !(negative && !whole) ? WHOLE : OTHER_NUMBER;
    value->whole = negative ? -(int64_t)whole : (int64_t)whole;
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

/* Scan any value; NULL if it is not JSON, or nested too deeply. */
static const uint8_t *scan_value(const uint8_t *at, const uint8_t *end, int depth, Value *value) {
    if (at == end) return NULL;
    const uint8_t *first = at;
    switch (*at) {
    case '"':
        at = scan_string(at + 1, end, &value->is_odd);
        if (!at) return NULL;
        value->type = TEXT;
        value->text = (Span){first + 1, at};
        return at + 1;
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
        if (*at != '-' && !is_digit(*at)) return NULL;
        return scan_number(at, end, value);
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
