// The recurrences of the encoder in training: products of bfloat16 added up in float32, activations fused.
//
// Everything is row-major. Rows are streams (LSTM) or streams times frequencies (convolutional LSTM), one time step after the other.
#include <immintrin.h>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

using bf16 = uint16_t;
constexpr int64_t LANES = 16;  // floats in a register

float widen(bf16 x) {
    uint32_t bits = static_cast<uint32_t>(x) << 16;
    float y;
    std::memcpy(&y, &bits, sizeof y);
    return y;
}

bf16 round_to_bf16(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return static_cast<bf16>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// Clamped: -ffast-math divides by way of an approximate reciprocal, which makes no number of 1 / infinity. What is no number itself
// may become one here; the gradient of the weights before stays none, and the step is skipped.
inline float sigmoid(float x) { return 1.0f / (1.0f + std::exp(std::fmin(std::fmax(-x, -40.0f), 40.0f))); }
inline float squash(float x) { return 2.0f * sigmoid(2.0f * x) - 1.0f; }

// A weight matrix (depth, columns) with pairs of rows side by side, as the dot-product instruction takes them.
struct Packed {
    int64_t depth, columns;
    std::vector<uint32_t> pairs;  // (depth / 2, columns)

    Packed(const float* weight, int64_t depth, int64_t columns) : depth(depth), columns(columns), pairs(depth / 2 * columns) {
        for (int64_t k = 0; k < depth / 2; k++)
            for (int64_t n = 0; n < columns; n++)
                pairs[k * columns + n] = round_to_bf16(weight[2 * k * columns + n]) |
                                         static_cast<uint32_t>(round_to_bf16(weight[(2 * k + 1) * columns + n])) << 16;
    }
};

template <int ROWS, int REGISTERS>
void multiply_tile(const bf16* a, int64_t stride, const uint32_t* pairs, int64_t depth, int64_t columns, float* c) {
    __m512 sum[ROWS][REGISTERS];
    for (int r = 0; r < ROWS; r++)
        for (int j = 0; j < REGISTERS; j++) sum[r][j] = _mm512_setzero_ps();
    for (int64_t k = 0; k < depth / 2; k++) {
        __m512bh b[REGISTERS];
        for (int j = 0; j < REGISTERS; j++) b[j] = (__m512bh)_mm512_loadu_si512(pairs + k * columns + j * LANES);
        for (int r = 0; r < ROWS; r++) {
            int32_t two;
            std::memcpy(&two, a + r * stride + 2 * k, sizeof two);
            __m512bh both = (__m512bh)_mm512_set1_epi32(two);
            for (int j = 0; j < REGISTERS; j++) sum[r][j] = _mm512_dpbf16_ps(sum[r][j], both, b[j]);
        }
    }
    for (int r = 0; r < ROWS; r++)
        for (int j = 0; j < REGISTERS; j++) _mm512_storeu_ps(c + r * columns + j * LANES, sum[r][j]);
}

template <int REGISTERS>
void multiply_columns(const bf16* a, int64_t rows, int64_t stride, const uint32_t* pairs, int64_t depth, int64_t columns, float* c) {
    int64_t r = 0;
    for (; r + 6 <= rows; r += 6) multiply_tile<6, REGISTERS>(a + r * stride, stride, pairs, depth, columns, c + r * columns);
    a += r * stride, c += r * columns;
    switch (rows - r) {
        case 5: return multiply_tile<5, REGISTERS>(a, stride, pairs, depth, columns, c);
        case 4: return multiply_tile<4, REGISTERS>(a, stride, pairs, depth, columns, c);
        case 3: return multiply_tile<3, REGISTERS>(a, stride, pairs, depth, columns, c);
        case 2: return multiply_tile<2, REGISTERS>(a, stride, pairs, depth, columns, c);
        case 1: return multiply_tile<1, REGISTERS>(a, stride, pairs, depth, columns, c);
    }
}

// c (rows, columns) = a (rows, depth) times the packed matrix; columns are a multiple of 32.
void multiply(const bf16* a, int64_t rows, const Packed& b, float* c) {
    int64_t n = 0;
    for (; n + 4 * LANES <= b.columns; n += 4 * LANES)
        multiply_columns<4>(a, rows, b.depth, b.pairs.data() + n, b.depth, b.columns, c + n);
    if (n < b.columns) multiply_columns<2>(a, rows, b.depth, b.pairs.data() + n, b.depth, b.columns, c + n);
}

// (streams, width, units) -> (streams, width, 3 units): each frequency beside the one below and the one above.
void neighbours(const bf16* hidden, int64_t streams, int64_t width, int64_t units, bf16* beside) {
    for (int64_t b = 0; b < streams; b++)
        for (int64_t f = 0; f < width; f++)
            for (int64_t j = 0; j < 3; j++) {
                bf16* to = beside + ((b * width + f) * 3 + j) * units;
                int64_t from = f + j - 1;
                if (from < 0 || from >= width)
                    std::memset(to, 0, units * sizeof(bf16));
                else
                    std::memcpy(to, hidden + (b * width + from) * units, units * sizeof(bf16));
            }
}

}  // namespace

extern "C" {

// inputs (T, R, 4H) and weight (depth, 4H) give outputs (T + 1, R, H) in bfloat16, cells (T + 1, R, H) and activated (T, R, 4H);
// the first of outputs and cells come in filled. Gates are in the order input, forget, then candidate and output as `candidate` says.
// width: frequencies of a convolutional LSTM, whose depth is 3H; 0 for an LSTM.
void recur(const bf16* inputs, const float* weight, bf16* outputs, float* cells, float* activated, int64_t steps, int64_t rows,
           int64_t units, int64_t width, int64_t candidate) {
    int64_t size = 4 * units, output = 5 - candidate;
    Packed packed(weight, width ? 3 * units : units, size);
    std::vector<bf16> beside(width ? rows * 3 * units : 0);
    for (int64_t t = 0; t < steps; t++) {
        const bf16* hidden = outputs + t * rows * units;
        if (width) neighbours(hidden, rows / width, width, units, beside.data()), hidden = beside.data();
        float* gates = activated + t * rows * size;
        multiply(hidden, rows, packed, gates);
        for (int64_t r = 0; r < rows; r++) {
            float* gate = gates + r * size;
            const bf16* input = inputs + (t * rows + r) * size;
            const float* before = cells + (t * rows + r) * units;
            float* cell = cells + ((t + 1) * rows + r) * units;
            bf16* out = outputs + ((t + 1) * rows + r) * units;
#pragma GCC ivdep
            for (int64_t u = 0; u < units; u++) {
                float i = sigmoid(gate[u] + widen(input[u]));
                float f = sigmoid(gate[units + u] + widen(input[units + u]));
                float g = squash(gate[candidate * units + u] + widen(input[candidate * units + u]));
                float o = sigmoid(gate[output * units + u] + widen(input[output * units + u]));
                float c = f * before[u] + i * g;
                gate[u] = i, gate[units + u] = f, gate[candidate * units + u] = g, gate[output * units + u] = o;
                cell[u] = c;
                out[u] = round_to_bf16(o * squash(c));
            }
        }
    }
}

// The gradient of the inputs (T, R, 4H), in bfloat16, from that of the outputs (T, R, H). back: the weight transposed, (4H, depth).
void recur_back(const bf16* d_outputs, const float* back, const float* cells, const float* activated, bf16* d_inputs, int64_t steps,
                int64_t rows, int64_t units, int64_t width, int64_t candidate) {
    int64_t size = 4 * units, depth = width ? 3 * units : units, output = 5 - candidate;
    Packed packed(back, size, depth);
    std::vector<float> d_cells(rows * units), d_hidden(rows * units), d_beside(width ? rows * depth : 0);
    for (int64_t t = steps - 1; t >= 0; t--) {
        for (int64_t r = 0; r < rows; r++) {
            const float* gate = activated + (t * rows + r) * size;
            const bf16* d_output = d_outputs + (t * rows + r) * units;
            const float* before = cells + (t * rows + r) * units;
            const float* cell = cells + ((t + 1) * rows + r) * units;
            float *dc = d_cells.data() + r * units, *dh = d_hidden.data() + r * units;
            bf16* d_gate = d_inputs + (t * rows + r) * size;
#pragma GCC ivdep
            for (int64_t u = 0; u < units; u++) {
                float i = gate[u], f = gate[units + u], g = gate[candidate * units + u], o = gate[output * units + u];
                float squashed = squash(cell[u]);
                float h = dh[u] + widen(d_output[u]);
                float c = dc[u] + h * o * (1 - squashed * squashed);
                d_gate[u] = round_to_bf16(c * g * i * (1 - i));
                d_gate[units + u] = round_to_bf16(c * before[u] * f * (1 - f));
                d_gate[candidate * units + u] = round_to_bf16(c * i * (1 - g * g));
                d_gate[output * units + u] = round_to_bf16(h * squashed * o * (1 - o));
                dc[u] = c * f;
            }
        }
        if (t == 0) break;
        const bf16* d_gates = d_inputs + t * rows * size;
        if (!width) {
            multiply(d_gates, rows, packed, d_hidden.data());
            continue;
        }
        multiply(d_gates, rows, packed, d_beside.data());
        for (int64_t r = 0; r < rows; r++) {  // what a frequency gave to itself, to the one below and to the one above
            int64_t f = r % width;
            const float* here = d_beside.data() + r * depth;
            float* dh = d_hidden.data() + r * units;
            for (int64_t u = 0; u < units; u++) dh[u] = here[units + u];
            if (f + 1 < width)
                for (int64_t u = 0; u < units; u++) dh[u] += here[depth + u];
            if (f > 0)
                for (int64_t u = 0; u < units; u++) dh[u] += here[-depth + 2 * units + u];
        }
    }
}
}
