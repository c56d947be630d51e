/*
 * Encodes raw pictures as scalable VP9 (SVC) with libvpx, and writes each layer frame with what it depends on.
 *
 *     scalable SPATIAL TEMPORAL KBITS KEY_INTERVAL < pictures.y4m > layers.fwsv
 *
 * The input is YUV4MPEG2 with 8-bit 4:2:0 pictures. A picture of KEY_INTERVAL is a key picture. The output, big-endian:
 *
 *     file    "FWSV"  version 1 (1)  spatial layers (1)  temporal layers (1)  0 (1)
 *             width (2)  height (2)  pictures: numerator (4) denominator (4) of their rate per second
 *     frame   picture (4)  spatial layer (1)  temporal layer (1)  flags (1): 1 is a key picture  0 (1)
 *             capture time, ns (8)  distances back to two frames of this file that it refers to, 0 is none (4, 4)
 *             bytes (4)  the coded layer frame
 *
 * Frames come in decoding order: all spatial layers of a picture from the smallest, then the next picture.
 */

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vpx/vp8cx.h>
#include <vpx/vpx_encoder.h>

enum {
    MOST_SIDE = 16384,
    /* Frame buffers of a VP9 decoder. */
    SLOTS = 8,
    VERSION = 1,
    IS_KEY = 1,
    /* libvpx's presets for real time are 5 to 9; 5 is the slowest, and the encoding is not timed. */
    SPEED = 5,
};

/* Shares of the rate: of the spatial layers for 1, 2 and 3 of them, and of the temporal layers with all below. Four times as many samples take about
   twice the bits. */
static const unsigned spatial_shares[3][3] = {{100}, {33, 67}, {14, 29, 57}};
static const unsigned temporal_shares[3][3] = {{100}, {60, 100}, {50, 70, 100}};

struct state {
    vpx_codec_ctx_t codec;
    uint32_t picture;
    uint64_t captured_ns;
    /* Frames written so far, and which of them each buffer of the decoder holds; 0 is none, 1 the first. */
    uint32_t frames;
    uint32_t slots[SLOTS];
};

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "scalable: %s: %s\n", what, why);
    exit(1);
}

static void check(struct state *state, vpx_codec_err_t error, const char *what)
{
    if (error != VPX_CODEC_OK) {
        const char *detail = vpx_codec_error_detail(&state->codec);
        fail(what, detail ? detail : vpx_codec_err_to_string(error));
    }
}

static unsigned number(const char *text, const char *name, unsigned least, unsigned most)
{
    char *end;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (errno || end == text || *end || value < least || value > most) {
        char why[80];
        snprintf(why, sizeof why, "a number from %u to %u is needed", least, most);
        fail(name, why);
    }
    return (unsigned)value;
}

static void put(uint64_t value, int bytes)
{
    while (bytes-- > 0)
        putchar((int)(value >> (8 * bytes) & 0xff));
}

/* Notes a reference of the current frame to what is in a buffer of the decoder. */
static void refer(struct state *state, uint32_t back[2], int slot)
{
    uint32_t held = slot >= 0 && slot < SLOTS ? state->slots[slot] : 0;
    if (!held)
        fail("a layer frame", "it refers to an empty buffer");
    uint32_t distance = state->frames + 1 - held;
    if (back[0] == distance || back[1] == distance)
        return;
    if (back[0] && back[1])
        fail("a layer frame", "it refers to three others");
    back[back[0] ? 1 : 0] = distance;
}

/* Called by libvpx for each layer frame. */
static void write_frame(vpx_codec_cx_pkt_t *packet, void *data)
{
    struct state *state = data;
    vpx_svc_layer_id_t layer;
    vpx_svc_ref_frame_config_t refs;
    if (packet->kind != VPX_CODEC_CX_FRAME_PKT)
        return;
    memset(&layer, 0, sizeof layer);
    memset(&refs, 0, sizeof refs);
    check(state, vpx_codec_control(&state->codec, VP9E_GET_SVC_LAYER_ID, &layer), "the layer of a frame");
    check(state, vpx_codec_control(&state->codec, VP9E_GET_SVC_REF_FRAME_CONFIG, &refs), "the references of a frame");
    int spatial = layer.spatial_layer_id;
    bool key = packet->data.frame.flags & VPX_FRAME_IS_KEY;
    uint32_t back[2] = {0, 0};
    /* In a key picture only the smallest layer is a key frame, and it takes all buffers. */
    if (!(key && spatial == 0)) {
        if (refs.reference_last[spatial])
            refer(state, back, refs.lst_fb_idx[spatial]);
        if (refs.reference_golden[spatial])
            refer(state, back, refs.gld_fb_idx[spatial]);
        if (refs.reference_alt_ref[spatial])
            refer(state, back, refs.alt_fb_idx[spatial]);
    }
    state->frames++;
    for (int slot = 0; slot < SLOTS; slot++)
        if ((key && spatial == 0) || refs.update_buffer_slot[spatial] >> slot & 1)
            state->slots[slot] = state->frames;
    put(state->picture, 4);
    put((unsigned)spatial, 1);
    put((unsigned)layer.temporal_layer_id, 1);
    put(key ? IS_KEY : 0, 1);
    put(0, 1);
    put(state->captured_ns, 8);
    put(back[0], 4);
    put(back[1], 4);
    put(packet->data.frame.sz, 4);
    fwrite(packet->data.frame.buf, 1, packet->data.frame.sz, stdout);
}

struct shape {
    unsigned width, height, rate, scale;
};

/* Reads the line with the size and the rate of the pictures. */
static struct shape read_header(void)
{
    char line[256];
    struct shape shape = {0, 0, 0, 0};
    if (!fgets(line, sizeof line, stdin) || strncmp(line, "YUV4MPEG2 ", 10) || !strchr(line, '\n'))
        fail("standard input", "it is not YUV4MPEG2; let ffmpeg write it with -f yuv4mpegpipe");
    for (char *word = strtok(line, " \n"); word; word = strtok(NULL, " \n")) {
        if (*word == 'W')
            shape.width = number(word + 1, "the width", 16, MOST_SIDE);
        else if (*word == 'H')
            shape.height = number(word + 1, "the height", 16, MOST_SIDE);
        else if (*word == 'F' && sscanf(word, "F%u:%u", &shape.rate, &shape.scale) != 2)
            fail("the rate", word);
        else if (*word == 'C' && (strncmp(word, "C420", 4) || strstr(word, "p1")))
            fail("the pictures are not 8-bit 4:2:0", word);
    }
    if (!shape.width || !shape.height || !shape.rate || !shape.scale)
        fail("standard input", "it does not say the pictures' size or rate");
    return shape;
}

/* Reads the next picture; false at the end of the input. */
static bool read_picture(vpx_image_t *image)
{
    char line[64];
    if (!fgets(line, sizeof line, stdin))
        return false;
    if (strncmp(line, "FRAME", 5))
        fail("standard input", "a picture does not begin with FRAME");
    for (int plane = 0; plane < 3; plane++) {
        unsigned width = plane ? (image->d_w + 1) / 2 : image->d_w;
        unsigned height = plane ? (image->d_h + 1) / 2 : image->d_h;
        for (unsigned row = 0; row < height; row++)
            if (fread(image->planes[plane] + (ptrdiff_t)row * image->stride[plane], 1, width, stdin) != width)
                fail("standard input", "it ends within a picture");
    }
    return true;
}

static vpx_codec_enc_cfg_t configuration(struct shape shape, unsigned spatial, unsigned temporal, unsigned kbits, unsigned interval)
{
    static const int modes[3] = {VP9E_TEMPORAL_LAYERING_MODE_NOLAYERING, VP9E_TEMPORAL_LAYERING_MODE_0101,
                                 VP9E_TEMPORAL_LAYERING_MODE_0212};
    vpx_codec_enc_cfg_t config;
    if (vpx_codec_enc_config_default(vpx_codec_vp9_cx(), &config, 0))
        fail("libvpx", "it has no VP9 encoder");
    config.g_w = shape.width;
    config.g_h = shape.height;
    config.g_timebase.num = (int)shape.scale;
    config.g_timebase.den = (int)shape.rate;
    /* A frame depends on the frames that it refers to, and not on the one before it. */
    config.g_error_resilient = VPX_ERROR_RESILIENT_DEFAULT;
    config.g_lag_in_frames = 0;
    config.g_threads = 1;
    config.rc_end_usage = VPX_CBR;
    config.rc_dropframe_thresh = 0;
    config.rc_min_quantizer = 2;
    config.rc_max_quantizer = 58;
    config.rc_buf_initial_sz = 500;
    config.rc_buf_optimal_sz = 600;
    config.rc_buf_sz = 1000;
    config.rc_target_bitrate = kbits;
    config.kf_mode = VPX_KF_AUTO;
    config.kf_min_dist = config.kf_max_dist = interval;
    config.ss_number_layers = spatial;
    config.ts_number_layers = temporal;
    config.ts_periodicity = 1u << (temporal - 1);
    config.temporal_layering_mode = modes[temporal - 1];
    for (unsigned t = 0; t < temporal; t++)
        config.ts_rate_decimator[t] = 1u << (temporal - 1 - t);
    for (unsigned s = 0; s < spatial; s++) {
        config.ss_target_bitrate[s] = kbits * spatial_shares[spatial - 1][s] / 100;
        for (unsigned t = 0; t < temporal; t++)
            config.layer_target_bitrate[s * temporal + t] = config.ss_target_bitrate[s] * temporal_shares[temporal - 1][t] / 100;
    }
    return config;
}

static void set_up(struct state *state, vpx_codec_enc_cfg_t *config)
{
    vpx_codec_priv_output_cx_pkt_cb_pair_t output = {write_frame, state};
    vpx_svc_extra_cfg_t extra;
    memset(&extra, 0, sizeof extra);
    for (unsigned s = 0; s < config->ss_number_layers; s++) {
        extra.scaling_factor_num[s] = 1;
        extra.scaling_factor_den[s] = 1 << (config->ss_number_layers - 1 - s);
        for (unsigned t = 0; t < config->ts_number_layers; t++) {
            extra.max_quantizers[s * config->ts_number_layers + t] = (int)config->rc_max_quantizer;
            extra.min_quantizers[s * config->ts_number_layers + t] = (int)config->rc_min_quantizer;
        }
    }
    check(state, vpx_codec_enc_init(&state->codec, vpx_codec_vp9_cx(), config, 0), "libvpx");
    check(state, vpx_codec_control(&state->codec, VP9E_SET_SVC, 1), "libvpx without layers");
    check(state, vpx_codec_control(&state->codec, VP9E_SET_SVC_PARAMETERS, &extra), "the layers");
    check(state, vpx_codec_control(&state->codec, VP8E_SET_CPUUSED, SPEED), "the speed");
    check(state, vpx_codec_control(&state->codec, VP9E_SET_AQ_MODE, 3), "the quantization");
    check(state, vpx_codec_control(&state->codec, VP9E_REGISTER_CX_CALLBACK, &output), "frames one by one");
}

int main(int count, char **words)
{
    static struct state state;
    if (count != 5) {
        fprintf(stderr, "usage: scalable SPATIAL TEMPORAL KBITS KEY_INTERVAL < pictures.y4m > layers.fwsv\n");
        return 2;
    }
    unsigned spatial = number(words[1], "spatial layers", 1, 3);
    unsigned temporal = number(words[2], "temporal layers", 1, 3);
    unsigned kbits = number(words[3], "kbit/s", 10, 1000000);
    unsigned interval = number(words[4], "the interval of key pictures", 1, 100000);
    struct shape shape = read_header();
    vpx_codec_enc_cfg_t config = configuration(shape, spatial, temporal, kbits, interval);
    set_up(&state, &config);
    vpx_image_t *image = vpx_img_alloc(NULL, VPX_IMG_FMT_I420, shape.width, shape.height, 32);
    if (!image)
        fail("a picture", "no memory");
    fwrite("FWSV", 1, 4, stdout);
    put(VERSION, 1);
    put(spatial, 1);
    put(temporal, 1);
    put(0, 1);
    put(shape.width, 2);
    put(shape.height, 2);
    put(shape.rate, 4);
    put(shape.scale, 4);
    for (; read_picture(image); state.picture++) {
        uint64_t before = state.frames;
        state.captured_ns = (uint64_t)state.picture * shape.scale * 1000000000u / shape.rate;
        check(&state, vpx_codec_encode(&state.codec, image, state.picture, 1, 0, VPX_DL_REALTIME), "a picture");
        vpx_codec_iter_t iterator = NULL;
        while (vpx_codec_get_cx_data(&state.codec, &iterator))
            ;
        if (state.frames - before != spatial)
            fail("a picture", "the encoder left layers out");
    }
    vpx_img_free(image);
    vpx_codec_destroy(&state.codec);
    if (fflush(stdout) || ferror(stdout))
        fail("standard output", strerror(errno));
    if (ferror(stdin))
        fail("standard input", strerror(errno));
    return 0;
}
