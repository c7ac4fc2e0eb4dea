/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crc.h: the three cyclic redundancy checks of S3: CRC-32 (as in zip), CRC-32C (Castagnoli) and
 * CRC-64/NVME. All are of the same form (reflected, ones at both ends), so one code does all.
 */
#ifndef SHOAL_S3_CRC_H
#define SHOAL_S3_CRC_H

#include <stddef.h>
#include <stdint.h>

enum s3_crc { S3_CRC_32, S3_CRC_32C, S3_CRC_64_NVME, S3_CRC_COUNT };

/* 4 or 8. */
int s3_crc_bytes(enum s3_crc kind);
/* The check of what `crc` is the check of (0: of nothing) and these bytes behind it. Any thread. */
uint64_t s3_crc_add(enum s3_crc kind, uint64_t crc, const void *data, size_t bytes);
/* The check of two pieces out of each one's own and the second one's length. */
uint64_t s3_crc_combine(enum s3_crc kind, uint64_t first, uint64_t second, uint64_t second_bytes);

#endif
