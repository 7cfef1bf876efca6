/* Growing memory, and interned strings: equal strings have one code, counted from 0. */

#ifndef STEPSCOPE_TEXTS_H
#define STEPSCOPE_TEXTS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* For functions that are called for each key of an event: an eighth of the time. */
#define ALWAYS_INLINE static inline __attribute__((always_inline))

typedef struct {
    void *data;
    int64_t count, capacity;
} Vector;

static bool reserve(Vector *vector, int64_t more, size_t size) {
    if (vector->capacity - vector->count >= more) return true;
    int64_t capacity = 2 * vector->capacity + more + 64;
    if (capacity > INT64_MAX / (int64_t)size) return false;
    void *data = realloc(vector->data, (size_t)capacity * size);
    if (!data) return false;
    vector->data = data;
    vector->capacity = capacity;
    return true;
}

typedef struct {
    const uint8_t *start, *end;
} Span;

static int64_t length_of(Span span) { return span.end - span.start; }

static inline uint64_t word_at(const uint8_t *at) {
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

/* As memcmp, without a call: texts are short. The last words that are compared overlap. */
static inline bool same_bytes(const uint8_t *one, const uint8_t *other, int64_t length) {
    if (length >= 16) {
        for (int64_t at = 0; at < length; at += 16) {
            if (at > length - 16) at = length - 16;
            if ((word_at(one + at) ^ word_at(other + at)) |
                (word_at(one + at + 8) ^ word_at(other + at + 8)))
                return false;
        }
        return true;
    }
    if (length >= 8)
        return word_at(one) == word_at(other) &&
               word_at(one + length - 8) == word_at(other + length - 8);
    if (length >= 4) {
        uint32_t a, b, c, d;
        memcpy(&a, one, 4), memcpy(&b, other, 4);
        memcpy(&c, one + length - 4, 4), memcpy(&d, other + length - 4, 4);
        return a == b && c == d;
    }
    while (length && one[length - 1] == other[length - 1]) length--;
    return !length;
}

static bool equals(Span span, const void *text, int64_t length) {
    return length_of(span) == length && same_bytes(span.start, text, length);
}

/* --- interned strings */

typedef struct {
    Vector bytes;  /* all strings, one after the other */
    Vector ends;   /* int64_t, the end of each in `bytes` */
    Vector hashes; /* uint64_t */
    int32_t *slots; /* codes + 1 by hash, 0 for a free slot */
    uint64_t mask;
} Texts;

static uint64_t hash_of(const uint8_t *text, int64_t length) {
    uint64_t hash = (uint64_t)length * 0x9E3779B97F4A7C15u, word;
    for (; length >= 8; length -= 8, text += 8) {
        memcpy(&word, text, 8);
        hash = (hash ^ word) * 0xD6E8FEB86659FD93u;
        hash ^= hash >> 32;
    }
    word = 0;
    if (length) memcpy(&word, text, (size_t)length);
    hash = (hash ^ word) * 0xD6E8FEB86659FD93u;
    return hash ^ (hash >> 32);
}

static bool grow_slots(Texts *texts) {
    uint64_t size = texts->slots ? 2 * (texts->mask + 1) : 4096;
    int32_t *slots = calloc(size, sizeof *slots);
    if (!slots) return false;
    const uint64_t *hashes = texts->hashes.data;
    for (int64_t code = 0; code < texts->hashes.count; code++) {
        uint64_t at = hashes[code] & (size - 1);
        while (slots[at]) at = (at + 1) & (size - 1);
        slots[at] = (int32_t)code + 1;
    }
    free(texts->slots);
    texts->slots = slots;
    texts->mask = size - 1;
    return true;
}

static uint8_t *room(Texts *texts, int64_t length) {
    if (!reserve(&texts->bytes, length + 1, 1)) return NULL; /* never NULL for no bytes */
    return (uint8_t *)texts->bytes.data + texts->bytes.count;
}

/* Return the code of a text, which is copied if it is new; -1: no memory. */
static int64_t intern(Texts *texts, Span text) {
    if (2 * texts->hashes.count >= (int64_t)texts->mask && !grow_slots(texts)) return -1;
    int64_t length = length_of(text);
    uint64_t hash = hash_of(text.start, length), at = hash & texts->mask;
    const int64_t *ends = texts->ends.data;
    const uint64_t *hashes = texts->hashes.data;
    for (; texts->slots[at]; at = (at + 1) & texts->mask) {
        int64_t code = texts->slots[at] - 1, start = code ? ends[code - 1] : 0;
        if (hashes[code] == hash && ends[code] - start == length &&
            same_bytes((const uint8_t *)texts->bytes.data + start, text.start, length))
            return code;
    }
    if (texts->hashes.count >= INT32_MAX - 1) return -1;
    if (!reserve(&texts->ends, 1, 8) || !reserve(&texts->hashes, 1, 8)) return -1;
    uint8_t *target = room(texts, length);
    if (!target) return -1;
    if (target != text.start) memcpy(target, text.start, (size_t)length);
    texts->bytes.count += length;
    ((int64_t *)texts->ends.data)[texts->ends.count++] = texts->bytes.count;
    ((uint64_t *)texts->hashes.data)[texts->hashes.count++] = hash;
    texts->slots[at] = (int32_t)texts->hashes.count;
    return texts->hashes.count - 1;
}

/* Return the code of `length` bytes that were written to the room after the strings; -1: no memory. */
static int64_t intern_last(Texts *texts, int64_t length) {
    const uint8_t *start = (const uint8_t *)texts->bytes.data + texts->bytes.count;
    return intern(texts, (Span){start, start + length});
}

static void forget_texts(Texts *texts) {
    texts->bytes.count = texts->ends.count = texts->hashes.count = 0;
    if (texts->slots) memset(texts->slots, 0, (texts->mask + 1) * sizeof *texts->slots);
}

static void free_texts(Texts *texts) {
    free(texts->bytes.data), free(texts->ends.data), free(texts->hashes.data), free(texts->slots);
}

#endif
